"""Cases of the judge for sources of files: what somebody wrote into Parquet, CSV or JSON lines, and what a task reads.

`python -m tests.judge.files --seconds 600 --seed 0` looks for red ones; each is named by its seed.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.judge import staged
from tests.judge.arrow_types import OF_BOTH, OF_LANCE, field_of, value_of
from tests.judge.sameness import is_same
from tests.judge.search import search
from tests.judge.steps import Red
from tests.judge.texts import is_same_json, is_text_of_json, says, shape_of, spelled, texts_of, value_of_shape
from tests.support.reading import FilesReader, Row, open_reader, rows_of

ROWS: Final = 7
_DEPTH: Final = 4
_NEVER: Final = "\0"


def read(of: random.Random, reader: FilesReader, *paths: str) -> tuple[list[Row], pa.Schema]:
    """Read files as tasks do: in pieces of any size, some rows at a time."""
    files, schema = reader.describe(paths)
    return [row for file in files for row in _rows_of(of, reader, file, schema)], schema


def _rows_of(of: random.Random, reader: FilesReader, file: SourceFile, schema: pa.Schema) -> list[Row]:
    borders: list[Any] = [file.start, file.end]
    if file.end is not None:
        borders = sorted({*borders, *(reader.align(file, of.randint(file.start, file.end), 0) for _ in range(2))})
    pace = [of.choice([2**-16, 2**-13, 1.0])]
    rows: list[Row] = []
    for start, end in itertools.pairwise(borders):
        rows += rows_of(reader.read(file, Range(file=0, start=start, end=end), schema, BatchSizing(60.0, scale=of.choice(pace))))
    return rows


def _in_files(of: random.Random, folder: Path, name: str, lines: list[str], end: str, header: tuple[str, ...] = ()) -> list[str]:
    """Write lines into one file, or into four: types are inferred from the first three."""
    parts = [lines] if of.random() < 0.5 else [lines[0:2], lines[2:4], lines[4:6], lines[6:]]
    for number, part in enumerate(parts):
        last = end if header else of.choice(["", end])
        (folder / f"{number}.{name}").write_bytes((end.join([*header, *part]) + last).encode())
    return [str(folder / f"{number}.{name}") for number in range(len(parts))]


# --- Parquet --------------------------------------------------------------------------------------------------------------


def parquet(of: random.Random, folder: Path) -> str:
    has_types = of.random() < 0.5  # without Arrow's own schema, a duration is a number
    leaves = of.choice([OF_BOTH, OF_LANCE]) if has_types else OF_BOTH
    fields = [field_of(of, f"v{number}", leaves, of.randint(0, _DEPTH)) for number in range(3)]
    values = [[value_of(of, field, leaves) for _ in range(ROWS)] for field in fields]
    table = pa.table(
        [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)], schema=pa.schema(fields)
    )
    path = str(folder / "a.parquet")
    pq.write_table(
        table,
        path,
        data_page_version=of.choice(["1.0", "2.0"]),
        use_dictionary=of.random() < 0.5,
        store_schema=has_types,
        compression=of.choice(["NONE", "zstd", "snappy", "gzip"]),
        row_group_size=of.choice([1, 3, 100]),
        use_compliant_nested_type=of.random() < 0.8,
        store_decimal_as_integer=of.random() < 0.3,
        data_page_size=of.choice([64, 1 << 20]),
    )
    rows, schema = read(of, open_reader("parquet"), path)
    _compare([dict(zip(table.column_names, row, strict=True)) for row in zip(*values, strict=True)], rows, schema, is_same)
    return "equal"


def parquet_of_duckdb(of: random.Random, folder: Path) -> str:
    """Write with DuckDB what Arrow has, and compare with what DuckDB reads again."""
    leaves = {kind: value for kind, value in OF_BOTH.items() if not pa.types.is_fixed_size_binary(kind)}
    field = field_of(of, "v", leaves, of.randint(0, _DEPTH), maps=False)
    if staged.has_names_of_one_case(field.type):
        return "not known to DuckDB"
    values = [value_of(of, field, leaves) for _ in range(ROWS)]
    path = str(folder / "a.parquet")
    given = pa.table({"v": pa.array(values, field.type)})  # noqa: F841 - DuckDB reads it by its name
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            connection.execute(f"COPY (SELECT * FROM given) TO '{path}' (FORMAT parquet)")
        except duckdb.Error:
            return "not written by DuckDB"
        known = connection.read_parquet(path).to_arrow_table()
    rows, schema = read(of, open_reader("parquet"), path)
    _compare(known.to_pylist(), rows, schema, is_same)
    return "equal"


# --- JSON lines -----------------------------------------------------------------------------------------------------------


def json_lines(of: random.Random, folder: Path) -> str:
    shape = {f"v{number}": shape_of(of, of.randint(0, _DEPTH)) for number in range(2)}
    given = [{name: value_of_shape(of, part) for name, part in shape.items() if of.random() < 0.9} for _ in range(ROWS)]
    paths = _in_files(of, folder, "json", [spelled(of, row) for row in given], of.choice(["\n", "\r\n"]))
    try:
        rows, schema = read(of, open_reader("json"), *paths)
    except CheckpointError as refusal:
        # The way out that the refusal names.
        if "string holds any value" not in str(refusal):
            raise
        rows, schema = read(of, open_reader("json", types=dict.fromkeys(shape, "string")), *paths)
        _compare(given, rows, schema, is_text_of_json)
        return "refused, and equal as text"
    _compare(given, rows, schema, is_same_json)
    return "equal"


# --- CSV ------------------------------------------------------------------------------------------------------------------


def csv(of: random.Random, folder: Path) -> str:
    delimiter, quote, escape = of.choice([",", ";", "\t", "|"]), of.choice(['"', '"', "'"]), of.choice(["", "", "\\"])
    nulls = of.choice([("",), ("",), ("", "NULL"), ("NA",), ("\\N",) if escape else ("-",)])
    columns = [texts_of(of, ROWS) for _ in range(3)]
    if of.random() < 0.1:
        columns = columns[:1]
    rows = [
        {f"v{number}": None if of.random() < 0.15 else text for number, text in enumerate(row)}
        for row in zip(*columns, strict=True)
    ]
    end = of.choice(["\n", "\r\n"])

    def written(text: str | None) -> str:
        if text is None:
            return nulls[-1]
        special = {delimiter, quote, escape, "\n", "\r"} - {""}
        must_be_quoted = text in nulls or any(char in text for char in special) or text != text.strip()
        if must_be_quoted or of.random() < 0.1:
            inner = text.replace(escape, escape * 2) if escape else text
            return f"{quote}{inner.replace(quote, (escape or quote) + quote)}{quote}"
        return text

    lines = [delimiter.join(map(written, row.values())) for row in rows]
    paths = _in_files(of, folder, "csv", lines, end, (delimiter.join(rows[0]),))
    options = {"delimiter": delimiter, "quote": quote, "escape": escape, "nullValues": list(nulls)}
    types = {} if of.random() < 0.8 else dict.fromkeys(rows[0], "string")
    found, schema = read(of, open_reader("csv", options=options, types=types), *paths)

    def same(text: str | None, got: Any, kind: pa.DataType) -> bool:
        return got is None if text is None else got is not None and says(text, got, kind)

    _compare(rows, found, schema, same)
    return "equal"


def _compare(given: Sequence[Row], got: Sequence[Row], schema: pa.Schema, same: Callable[[Any, Any, pa.DataType], bool]) -> None:
    nothing: Row = {}
    for one, other in itertools.zip_longest(given, got, fillvalue=nothing):
        for name in dict.fromkeys([*one, *schema.names]):
            kind = schema.field(name).type if name in schema.names else pa.null()
            if not same(one.get(name), other.get(name), kind):
                raise Red(f"column {name!r} ({kind}) was given {one.get(name)!r}, and has {other.get(name)!r} in {other!r}")


WAYS: Final = (parquet, parquet_of_duckdb, json_lines, csv)


def judge(seed: int, verdicts: Counter[str]) -> None:
    """Judge one case: a file of some format."""
    of = random.Random(seed)
    way = WAYS[seed % len(WAYS)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            verdict = way(of, Path(folder))
        except CheckpointError as refusal:
            verdict = "refused"
            if way in (parquet, parquet_of_duckdb) and _is_read_by_arrow(Path(folder)):
                raise Red(f"seed {seed}: {way.__name__}: was refused: {refusal}") from refusal
        except Red as red:
            raise Red(f"seed {seed}: {way.__name__}: {red}") from red
    verdicts[f"{way.__name__}: {verdict}"] += 1


def _is_read_by_arrow(folder: Path) -> bool:
    """Whether pyarrow, by itself, can read a file again that it wrote: not all lists that are required in maps."""
    try:
        pq.read_table(folder / "a.parquet")
    except (pa.ArrowException, OSError):  # as for levels out of bounds, which it has written
        return False
    return True


if __name__ == "__main__":
    search(judge)
