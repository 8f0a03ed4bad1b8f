"""The types that a run would read CSV columns as, each with the text that decided it.

The first rows are those that a driver looks at (`checkpoint_formats.files.csv.reader`), and the rules are the same code
(`checkpoint_protocol.text_types`). Files that are not what the source says are named elsewhere: of them nothing is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.files.texts import UTF8_MARK, TextStream, is_gzip
from checkpoint_operator.validation.report import ColumnType, Findings
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest import FIRST_NULL_VALUES, Source, SourceOptions
from checkpoint_protocol.text_types import Inferred, TextColumn

_SAMPLE_BYTES: Final = 4 << 20
_SAMPLE_FILES: Final = 3
#: More than the sample, for blank lines and the header before it.
_READ_BYTES: Final = _SAMPLE_BYTES + (1 << 20)
_MOST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class _Sample:
    """The first rows of a file as binaries; `line` is where the first one stands, None where a line's end may be inside a row."""

    path: str
    rows: Any
    text: bytes
    line: int | None

    def place_of(self, row: int) -> str:
        if self.line is None:
            return f"row {row + 1}"
        filled = (number for number, line in enumerate(self.text.splitlines()) if line)
        return f"line {self.line + next(number for nth, number in enumerate(filled) if nth == row)}"


def infer_columns(
    listing: SourceFiles,
    source: Source,
    files: Sequence[FoundFile],
    names: Sequence[str],
    whole: frozenset[str],
    findings: Findings,
) -> tuple[ColumnType, ...]:
    """Return the columns that are read; none where the first rows cannot be. `whole` are files that are read from their start."""
    chosen = [name for name in source.columns or names if name in names]
    unknown = [name for name in chosen if name not in source.types]
    try:
        samples = _samples(listing, source, files, names, whole, unknown)
        inferred = {name: _infer(name, samples, findings) for name in unknown}
    except (pa.ArrowException, CheckpointError, OSError) as error:
        findings.note(f"the types of the columns cannot be told, since the first rows cannot be read: {_one_line(error)}")
        return ()
    return tuple(
        ColumnType(column=name, type=source.types[name].strip(), inferred=False, why="spec.source.types says so")
        if name in source.types
        else ColumnType(column=name, type=inferred[name].type, inferred=True, why=_why(name, inferred[name], samples))
        for name in chosen
    )


def _samples(
    listing: SourceFiles,
    source: Source,
    files: Sequence[FoundFile],
    names: Sequence[str],
    whole: frozenset[str],
    columns: Sequence[str],
) -> list[_Sample]:
    found: list[_Sample] = []
    for file in files:
        sample = _sample(listing, source.options, file, names, columns, from_start=file.path in whole)
        if sample is not None and sample.rows.num_rows:
            found.append(sample)
        if len(found) == _SAMPLE_FILES:
            break
    return found


def _sample(
    listing: SourceFiles,
    options: SourceOptions,
    file: FoundFile,
    names: Sequence[str],
    columns: Sequence[str],
    from_start: bool,
) -> _Sample | None:
    stream = TextStream(listing, file.path, is_gzip(file.path, options))
    text = stream.read(_READ_BYTES)
    stream.close()
    is_all = len(text) < _READ_BYTES
    if from_start:
        return _first_batch(file, options, text + b"\n" if is_all else text, columns)
    filled = text.lstrip(b"\r\n")
    rows = filled.partition(b"\n")[2] if options.header else filled
    line = 1 + text[: len(text) - len(rows)].count(b"\n")
    if len(rows) > _SAMPLE_BYTES or not is_all:
        rows = rows[: (rows.rfind(b"\n", 0, _SAMPLE_BYTES) + 1) or (rows.find(b"\n") + 1)]
    if not rows.strip(b"\r\n"):
        return None
    # As a driver reads blocks: here it is no byte order mark.
    data = b"\n" + rows if rows.startswith(UTF8_MARK) else rows
    read = pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(names))
    table = pa.csv.read_csv(pa.BufferReader(data), read, _parse_options(options), _convert_options(options, columns))
    return _Sample(file.path, table, rows, line)


def _first_batch(file: FoundFile, options: SourceOptions, text: bytes, columns: Sequence[str]) -> _Sample | None:
    read = pa.csv.ReadOptions(use_threads=False, block_size=_SAMPLE_BYTES, autogenerate_column_names=not options.header)
    if not text.strip(b"\r\n"):
        return None
    with pa.csv.open_csv(pa.BufferReader(text), read, _parse_options(options), _convert_options(options, columns)) as reader:
        batch = next(iter(reader), None)
    return None if batch is None else _Sample(file.path, pa.Table.from_batches([batch]), b"", None)


def _parse_options(options: SourceOptions) -> Any:
    return pa.csv.ParseOptions(
        delimiter=options.delimiter,
        quote_char=options.quote or False,
        double_quote=True,
        escape_char=options.escape or False,
        newlines_in_values=True,
    )


def _convert_options(options: SourceOptions, columns: Sequence[str]) -> Any:
    types: Mapping[str, Any] = dict.fromkeys(columns, pa.binary())
    return pa.csv.ConvertOptions(
        column_types=types,
        include_columns=list(columns),
        null_values=list(options.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _infer(name: str, samples: Sequence[_Sample], findings: Findings) -> Inferred:
    column = TextColumn()
    for sample in samples:
        texts = pc.drop_null(pc.unique(sample.rows.column(name)))
        try:
            column.add(pc.cast(texts, pa.string()).to_pylist())
        except pa.ArrowInvalid:
            findings.problem(
                "spec.source",
                f"the file {sample.path} has text that is not UTF-8 in the column {name!r}; convert the file, or set "
                f"source.types.{name}: binary",
            )
    return column.infer()


def _why(name: str, inferred: Inferred, samples: Sequence[_Sample]) -> str:
    if inferred.text is None:
        return f"it {inferred.why}"
    hint = "; where it means NULL, name it in source.options.nullValues" if inferred.text in FIRST_NULL_VALUES else ""
    text = inferred.text if len(inferred.text) <= _MOST_SHOWN else f"{inferred.text[:_MOST_SHOWN]}..."
    return f"{text!r} in {next(_places(name, inferred.text, samples))} {inferred.why}{hint}"


def _places(name: str, text: str, samples: Sequence[_Sample]) -> Iterator[str]:
    for sample in samples:
        row = pc.index(sample.rows.column(name), pa.scalar(text.encode(), pa.binary())).as_py()
        if row >= 0:
            yield sample.place_of(row) + (f" of {sample.path}" if len(samples) > 1 else "")


def _one_line(error: Exception) -> str:
    return " ".join((error.message if isinstance(error, CheckpointError) else str(error)).split())[:400]
