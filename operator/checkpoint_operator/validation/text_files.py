"""Text files by their beginnings: encoding, compression, the header of a CSV file, the first object of a JSON file."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.files.texts import UTF8_MARK, is_gzip
from checkpoint_formats.type_names import parse_type
from checkpoint_operator.validation.looks import MOST_FILES, Look, say_of_files
from checkpoint_operator.validation.report import Findings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import Source, SourceOptions
from checkpoint_protocol.parallel import in_threads
from checkpoint_protocol.store import translate_store_error

_HEAD_BYTES: Final = 256 << 10
#: How other formats begin, so that a file is not taken for text.
_MAGIC: Final = {b"PAR1": "Parquet", b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"ORC": "ORC", b"Obj\x01": "Avro"}


class _Unreadable(Exception):
    """A file is not what the source says. The message begins after the file's name."""


def is_read_from_its_start(path: str, source: Source) -> bool:
    """Whether a text file cannot be cut into splits, because a line's end may be inside a row or is not to be seen."""
    try:
        is_compressed = is_gzip(path, source.options)
    except CheckpointError:
        return True  # by another method: said where the file is looked at
    return is_compressed or (source.format == "csv" and (source.options.multi_line or source.options.escape != ""))


def check_type_names(types: Mapping[str, str], where: str, findings: Findings) -> None:
    for name, text in types.items():
        try:
            parse_type(name, text, where)
        except CheckpointError as error:
            findings.problem(f"{where}.{name}", error.message.removeprefix(f"{where}.{name}: "))


def check_options(options: SourceOptions, findings: Findings) -> bool:
    """Whether the characters of a CSV dialect can be those."""
    wrong = [
        name
        for name in ("delimiter", "quote", "escape")
        if not (text := getattr(options, name)).isascii() or text in ("\r", "\n")
    ]
    for name in wrong:
        findings.problem(f"spec.source.options.{name}", "one ASCII character is expected, and no line break")
    return not wrong


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The first lines of a file, from the first one that is not blank; `is_whole` if there are no more."""

    lines: str
    is_whole: bool

    @property
    def is_cut_off(self) -> bool:
        """Whether not even the first line could be seen to its end."""
        return not self.is_whole and not self.lines.endswith("\n")


@dataclass(frozen=True, slots=True)
class _TextLook:
    """A file's columns: None if it has no line, () if the first one is too long to be seen. `wrong` says why it is refused."""

    names: tuple[str, ...] | None = None
    is_empty: bool = False
    wrong: str | None = None


def look_at_text(listing: SourceFiles, source: Source, files: Sequence[FoundFile], findings: Findings) -> Look:
    """Read the beginnings; a problem for each file that is not of the format, or has other CSV columns than the first."""
    looks = in_threads(lambda file: _look(listing, source, file), files[:MOST_FILES])
    first: tuple[FoundFile, tuple[str, ...]] | None = None
    wrong: list[str] = []
    for file, look in zip(files, looks, strict=False):
        if look.wrong is not None:
            wrong.append(look.wrong)
        elif look.names and first is None:
            first = (file, look.names)
        elif look.names and first is not None and source.format == "csv" and look.names != first[1]:
            wrong.append(
                f"the file {file.path} has the columns {', '.join(look.names)}, and {first[0].path} has {', '.join(first[1])}; "
                "rewrite one of them, or use one write for each kind"
            )
    say_of_files(wrong, findings)
    if len(files) <= MOST_FILES and not wrong and all(look.names is None for look in looks):
        findings.problem("spec.source", "no file has a line of text, so that the columns are not known")
    empty = frozenset(file.path for file, look in zip(files, looks, strict=False) if look.is_empty)
    return Look(columns=first[1] if first else None, empty=empty)


def _look(listing: SourceFiles, source: Source, file: FoundFile) -> _TextLook:
    try:
        beginning = _begin(listing, file, source.options)
        names = _csv_names(beginning, source.options) if source.format == "csv" else _json_names(beginning)
    except _Unreadable as error:
        return _TextLook(wrong=f"the file {file.path} {error}")
    except CheckpointError as error:
        return _TextLook(wrong=error.message)
    except OSError as error:
        return _TextLook(wrong=translate_store_error(error, file.path).message)
    rows = beginning.lines.partition("\n")[2] if source.format == "csv" and source.options.header else beginning.lines
    is_empty = beginning.is_whole and not rows and not is_read_from_its_start(file.path, source)
    return _TextLook(names, is_empty)


def _begin(listing: SourceFiles, file: FoundFile, options: SourceOptions) -> _Beginning:
    is_compressed = is_gzip(file.path, options)
    head = listing.read_range(file.path, 0, min(_HEAD_BYTES, file.size_bytes))
    is_whole = len(head) == file.size_bytes
    if is_compressed:
        try:
            head, is_whole = _decompressed(head, is_whole)
        except zlib.error as error:
            raise _Unreadable(f"is not gzip: {error}; replace or remove it") from error
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _Unreadable("is UTF-16 text; convert it to UTF-8")
    other = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if other is not None or b"\0" in head:
        raise _Unreadable(f"is not text but {other or 'has NUL bytes in it'}; correct source.format or the path")
    if not is_whole:
        head = head[: head.rfind(b"\n") + 1] or head  # the last line, and perhaps its last character, are cut off
    head = head.removeprefix(UTF8_MARK).lstrip(b"\r\n")
    try:
        return _Beginning(head.decode("utf-8", errors="strict" if is_whole or head.endswith(b"\n") else "ignore"), is_whole)
    except UnicodeDecodeError as error:
        raise _Unreadable(f"is not UTF-8 text: {error}; convert it") from error


def _decompressed(data: bytes, is_whole: bool) -> tuple[bytes, bool]:
    """Return the beginning of a gzip text, which may have several members, and whether that is all of it."""
    text = b""
    while data and len(text) < _HEAD_BYTES:
        member = zlib.decompressobj(wbits=31)
        text += member.decompress(data, _HEAD_BYTES - len(text))
        if not member.eof:
            return text, False
        data = member.unused_data
    return text, is_whole and not data


def _csv_names(beginning: _Beginning, options: SourceOptions) -> tuple[str, ...] | None:
    """Return the columns of the first line; None if there is no line, () if it is too long to be seen whole."""
    if not beginning.lines or beginning.is_cut_off:
        return () if beginning.is_cut_off else None
    rows = csv.reader(
        io.StringIO(beginning.lines, newline=""),
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        escapechar=options.escape or None,
        doublequote=True,
    )
    try:
        fields = next(rows, [])
    except csv.Error as error:
        raise _Unreadable(f"has a first line that is not CSV: {error}; mend the file, or correct source.options") from error
    names = tuple(fields) if options.header else tuple(f"f{number}" for number in range(len(fields)))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unreadable(f"has two columns {twice!r}; rename one, or set source.options.header: false if there is no header")
    return names


def _json_names(beginning: _Beginning) -> tuple[str, ...] | None:
    """Return the fields of the first object; None if there is no line, () if it is too long to be seen whole."""
    if beginning.lines.lstrip().startswith("["):
        raise _Unreadable(
            "is a JSON array, and one object a line is expected: make lines of it, e.g. with jq -c '.[]' FILE > NEW_FILE (a "
            "folder of their own for the new files), and read those"
        )
    line = next((line for line in beginning.lines.split("\n") if line.strip()), None)
    if line is None or beginning.is_cut_off:
        return None if line is None else ()
    try:
        first = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"has a first line that is not JSON: {error}; one object a line is expected") from error
    if not isinstance(first, dict):
        raise _Unreadable(f"begins with a JSON {type(first).__name__}; one object a line is expected")
    return tuple(first)
