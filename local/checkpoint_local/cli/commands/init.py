"""`checkpointed-write init`: a manifest and a step for files of this machine, which run as they are."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.readers import file_reader_for
from checkpoint_formats.rows.selecting import Selection
from checkpoint_local.cli import exits
from checkpoint_local.cli.commands.schema import schema_of
from checkpoint_local.cli.exits import say_error
from checkpoint_local.cli.printing import messages, say_problem
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.sources.source import FilesSource
from checkpoint_protocol.places.storage import StorageSettings

_Format = Literal["parquet", "csv", "json", "binary"]
_SUFFIXES: Final[dict[str, _Format]] = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".csv", ".csv.gz"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz"), "json"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"), "binary"),
}
_KINDS: Final[dict[_Format, str]] = {"parquet": "Parquet", "csv": "CSV", "json": "JSON", "binary": "image"}
_MANIFEST, _STEPS, _SCHEMA = "write.yaml", "steps.py", "write.schema.json"
#: Who calls this at the root of a disk is not to wait for all of it.
_MOST_FILES: Final = 100_000
_MOST_OF_A_NAME: Final = 32

_MANIFEST_TEXT: Final = """\
apiVersion: checkpointed.dev/v1alpha1
kind: CheckpointedWrite
metadata: {{name: {name}}}
spec:
  source:
    files: {{format: {format}, paths: {paths}}}
  steps:
    - {{call: "steps:each", input: row}}  # the function in steps.py
  code: {{path: .}}
  onRowError: Quarantine  # rows that fail are set aside: checkpointed-write failed write.yaml
  sink:
    {sink}
    create: true
  checkpoint: {{uri: checkpoints}}
"""
_STEPS_TEXT: Final = '''\
def each(row):
    """Return the row of the table that is made of a row of the source."""
    # Put your function here. {row}
    return row
'''


@dataclass(frozen=True, slots=True)
class _Found:
    """Files of one kind. `paths`: how the manifest says them."""

    name: str
    format: _Format
    paths: tuple[str, ...]
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return counted(len(self.files), f"{_KINDS[self.format]} file")


class _RefusedError(Exception):
    """What is to be said instead."""


def init_command(path: str | None, iceberg: str | None, schema: bool) -> int:
    """Write the files and return the exit code."""
    console = messages()
    try:
        if there := [name for name in (_MANIFEST, _STEPS, *([_SCHEMA] if schema else [])) if Path(name).exists()]:
            raise _RefusedError(f"{there[0]} is there already, and nothing is overwritten; move it, or work in another folder")
        found = _find(path) if path is not None else _only_one(_below())
        texts = _texts(found, iceberg, schema)
    except _RefusedError as refused:
        say_problem(console, f"error: {refused}")
        return exits.MANIFEST_WRONG
    except CheckpointError as error:
        say_error(error, console)
        return exits.MANIFEST_WRONG
    try:
        for name, text in texts.items():
            with Path(name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        say_problem(console, f"error: {name} cannot be written: {error.strerror}")
        return exits.FAILED
    console.print(f"{found}: {', '.join(found.paths)}", markup=False)
    console.print(f"written: {', '.join(texts)}", markup=False)
    console.print(f"put your function into {_STEPS}, then: checkpointed-write preview {_MANIFEST}", markup=False)
    return exits.DONE


def _texts(found: _Found, iceberg: str | None, schema: bool) -> dict[str, str]:
    if iceberg is None:
        sink = f"lance: {{uri: {found.name}.lance}}"
    else:
        catalog, _, table = iceberg.partition(".")
        if not all((catalog, *table.split("."))) or "." not in table:
            raise _RefusedError(f"--iceberg {iceberg}: CATALOG.NAMESPACE.TABLE is expected")
        sink = f"iceberg: {{catalog: {json.dumps(catalog)}, table: {json.dumps(table)}}}"
    paths = json.dumps(found.paths, ensure_ascii=False)
    manifest = _MANIFEST_TEXT.format(name=found.name, format=found.format, paths=paths, sink=sink)
    texts = {_MANIFEST: manifest, _STEPS: _STEPS_TEXT.format(row=f"The row is a dict with {_columns(found)}.")}
    if schema:
        texts[_MANIFEST] = f"# yaml-language-server: $schema={_SCHEMA}\n{manifest}"
        texts[_SCHEMA] = json.dumps(schema_of("manifest"), indent=2) + "\n"
    return texts


def _columns(found: _Found) -> str:
    """Return the columns of the first file, which is opened: one that is not what its name says is refused here."""
    storage = StorageSettings()
    source = FilesSource(format=found.format, paths=(glob.escape(str(found.files[0].absolute())),))
    described = file_reader_for(source, Selection(), storage).describe(SourceFiles(storage).expand(source.paths))
    names = ", ".join(described.known).replace("\n", " ")
    return names if len(names) <= 100 else f"{names[:100]}…"


# --- what there is ------------------------------------------------------------------------------------------------------------


def _find(path: str) -> _Found:
    place = Path(path)
    if "://" in path:
        raise _RefusedError(f"{path}: files of this machine are expected; write.yaml can name buckets")
    if place.is_dir():
        found = _of_folder(place, list(islice(_files_in(place), _MOST_FILES)))
    else:
        files = [place] if place.is_file() else [Path(one) for one in glob.glob(path, recursive=True)]
        by_kind = _by_kind([one for one in files if one.is_file()])
        first = next(iter(by_kind.values()), [place])[0]
        stem = first.name.partition(".")[0] if place.is_file() else first.absolute().parent.name
        named = glob.escape(path) if place.is_file() else path
        found = [_Found(_label(stem), kind, (named,), tuple(of_kind)) for kind, of_kind in by_kind.items()]
    if not found:
        kinds = ", ".join(_KINDS.values())
        raise _RefusedError(f"{path}: there are no files of a known kind ({kinds}, by the ends of their names)")
    return _only_one(found)


def _below() -> list[_Found]:
    """Return what is below the working directory, by the folder in it, and by kind."""
    folders: dict[str, list[Path]] = {}
    for file in islice(_files_in(Path()), _MOST_FILES):
        folders.setdefault(file.parts[0] if len(file.parts) > 1 else ".", []).append(file)
    found = [one for folder, files in folders.items() for one in _of_folder(Path(folder), files)]
    if not found:
        raise _RefusedError("there are no Parquet, CSV, JSON or image files here: checkpointed-write init PATH")
    return found


def _only_one(found: Sequence[_Found]) -> _Found:
    if len(found) > 1:
        listed = "".join(f"\n  {one}: checkpointed-write init {shlex.quote(one.paths[0])}" for one in found)
        raise _RefusedError(f"there are several kinds of files, or folders; name one:{listed}")
    return found[0]


def _of_folder(folder: Path, files: Sequence[Path]) -> list[_Found]:
    name = _label(folder.absolute().name)
    return [_Found(name, kind, _patterns(folder, of_kind), tuple(of_kind)) for kind, of_kind in _by_kind(files).items()]


def _patterns(folder: Path, files: Sequence[Path]) -> tuple[str, ...]:
    deep = "**/" if any(file.parent != folder for file in files) else ""
    beginning = "" if folder == Path() else f"{glob.escape(str(folder))}/"
    ends = Counter(file.name[-len(suffix) :] for file in files if (suffix := _suffix(file)))
    return tuple(f"{beginning}{deep}*{end}" for end in sorted(ends))


def _by_kind(files: Sequence[Path]) -> dict[_Format, list[Path]]:
    by_kind: dict[_Format, list[Path]] = {}
    for file in sorted(files):
        if suffix := _suffix(file):
            by_kind.setdefault(_SUFFIXES[suffix], []).append(file)
    return by_kind


def _suffix(file: Path) -> str:
    return max((suffix for suffix in _SUFFIXES if file.name.lower().endswith(suffix)), key=len, default="")


def _files_in(folder: Path) -> Iterator[Path]:
    """Give the files of a folder at all depths, but for hidden ones, and those of tables and checkpoints."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._" and name != "checkpoints" and ".lance" not in name)
        yield from (Path(parent, name) for name in names if name[0] not in "._")


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MOST_OF_A_NAME].strip("-") or "rows"
