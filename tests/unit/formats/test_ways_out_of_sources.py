"""A source that cannot be read, what is said of it, and each thing that one is told to do: then it is read."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_protocol.errors import NeedsChange
from tests.support.reading import Row, chunks_of, open_reader, whole


@dataclass(frozen=True, slots=True)
class Source:
    """Files by their names, and what the manifest says of them. `paths`: the names of what is read; by default the folder."""

    files: Mapping[str, bytes]
    says: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ("",)
    sets_apart: bool = False


def parquet(**columns: list[Any]) -> bytes:
    return parquet_of(pa.table(columns))


def parquet_of(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def csv(text: str | bytes, *, sets_apart: bool = False, name: str = "x.csv", **says: Any) -> Source:
    return Source({name: text.encode() if isinstance(text, str) else text}, {"format": "csv", **says}, sets_apart=sets_apart)


def json(text: str, *, sets_apart: bool = False, **says: Any) -> Source:
    return Source({"x.json": text.encode()}, {"format": "json", **says}, sets_apart=sets_apart)


def folder(*files: bytes, kind: str = "parquet", **says: Any) -> Source:
    return Source({f"{number}.{kind}": data for number, data in enumerate(files)}, {"format": kind, **says})


NUMBERS: Final = parquet(a=[1, 2])
TEXTS: Final = parquet(a=["x"])
OTHERS: Final = parquet(b=["y"])
DOUBLES: Final = parquet(a=[0.5])

#: What is said, the source of which it is said, and the source after each thing that one is told to do, with its rows.
WAYS_OUT: Final[Mapping[str, tuple[Source, list[tuple[Source, int]]]]] = {
    # CSV
    "convert them to \\n": (csv("a,b\r1,2\r"), [(csv("a,b\n1,2\n"), 1)]),
    "mend the file, set onRowError: Quarantine to set such lines apart, or give the column a type": (
        csv("a,b\n1,2\n3,4,5\n"),
        [(csv("a,b\n1,2\n3,4\n"), 2), (csv("a,b\n1,2\n3,4,5\n", sets_apart=True), 1)],
    ),
    "convert the file, or set source.files.types.{}: binary": (
        csv(b"a,b\n1,\xe9\n"),
        [(csv("a,b\n1,é\n"), 1), (csv(b"a,b\n1,\xe9\n", types={"b": "binary"}), 1)],
    ),
    "correct source.files.types": (csv("a\n1\n", types={"x": "int64"}), [(csv("a\n1\n", types={"a": "int64"}), 1)]),
    "mend the file, or convert it to UTF-8": (
        csv(b"a,\xe9\n1,2\n"),
        [(csv("a,é\n1,2\n"), 1), (csv("a,b\n1,2\n"), 1), (csv("a,é\n1,2\n", csv={"multiLine": True}), 1)],
    ),
    "set source.files.csv.header: false if there is none": (
        csv("7,8,7\n1,2,3\n"),
        [(csv("a,b,c\n1,2,3\n"), 1), (csv("7,8,7\n1,2,3\n", csv={"header": False}), 2)],
    ),
    "set source.files.csv.header: true if there is one": (
        folder(b"a,b\n1,2\n", b"b,a,c\n1,2,3\n", kind="csv", csv={"header": False}),
        [
            (folder(b"a,b\n1,2\n", b"b,a\n1,2\n", kind="csv", csv={"header": False}), 4),
            (folder(b"a,b\n1,2\n", kind="csv", csv={"header": False}), 2),
            (folder(b"a,b\n1,2\n", b"b,a,c\n1,2,3\n", kind="csv"), 2),
        ],
    ),
    "start the write when there are rows": (csv(""), [(csv("a\n1\n"), 1)]),
    "mend the file, or set source.files.csv.quote: '' if the character is part of the text": (
        csv('n,text\n1,"open\n', csv={"multiLine": True}),
        [
            (csv('n,text\n1,"closed"\n', csv={"multiLine": True}), 1),
            (csv('n,text\n1,"open\n', csv={"multiLine": True, "quote": ""}), 1),
        ],
    ),
    "source.files.csv.multiLine: true if fields have line breaks in them": (
        csv('n,text\n1,"two\nlines"\n'),
        [(csv('n,text\n1,"two\nlines"\n', csv={"multiLine": True}), 1), (csv('n,text\n1,"x\n2,y\n', csv={"quote": ""}), 2)],
    ),
    "{} is the delimiter too; correct one of them, or set {}: ''": (
        csv('a"b\n1"2\n', csv={"delimiter": '"'}),
        [(csv('a"b\n1"2\n', csv={"delimiter": '"', "quote": ""}), 1), (csv("a|b\n1|2\n", csv={"delimiter": "|"}), 1)],
    ),
    "as \\ stands before it, set source.files.csv.escape: '\\'": (
        csv('n,text\n1,"say \\"hi\\""\n'),
        [(csv('n,text\n1,"say \\"hi\\""\n', csv={"escape": "\\"}), 1)],
    ),
    "remove the line, or write a missing value as a text that source.files.csv.nullValues names (NA)": (
        csv("a\n1\n\n2\n"),
        [(csv("a\n1\n2\n"), 2), (csv("a\n1\nNA\n2\n", csv={"nullValues": ["NA"]}), 3)],
    ),
    ", or set source.files.csv.delimiter: {} if that is between the columns": (
        csv("id;a\n1;2\n", columns=["id"]),
        [(csv("id;a\n1;2\n", columns=["id"], csv={"delimiter": ";"}), 1)],
    ),
    "mend the end of the file: write what the escape stands before, or remove the escape": (
        csv("a,b\n1,x\\", csv={"escape": "\\"}),
        [(csv("a,b\n1,x\\n\n", csv={"escape": "\\"}), 1), (csv("a,b\n1,x", csv={"escape": "\\"}), 1)],
    ),
    # JSON
    "make lines of it, e.g. with jq": (json('[{"a": 1}, {"a": 2}]'), [(json('{"a": 1}\n{"a": 2}\n'), 2)]),
    "write each object on a line of its own": (json('{"a": 1}{"a": 2}\n'), [(json('{"a": 1}\n{"a": 2}\n'), 2)]),
    "mend the file, name the field's type by source.files.types (string holds any value, as its JSON text), or set onRowError": (
        json(f'{{"a": {"9" * 39}}}\n{{"a": 1}}\n'),
        [
            (json('{"a": 9}\n{"a": 1}\n'), 2),
            (json(f'{{"a": {"9" * 39}}}\n{{"a": 1}}\n', types={"a": "double"}), 2),
            (json('{"a": 1}\n{"a": "x"}\n', types={"a": "string"}), 2),
            (json('{"a": 1}\n{"a": "x"}\n', types={"a": "int64"}, sets_apart=True), 1),
            (json('{"a": 1}\nno json\n', sets_apart=True), 1),
        ],
    ),
    ", or give a field that the first rows do not have a type by source.files.types": (
        json('{"a": 1}\n', columns=["a", "late"]),
        [(json('{"a": 1}\n', columns=["a", "late"], types={"late": "int64"}), 1), (json('{"a": 1}\n', columns=["a"]), 1)],
    ),
    "start the write when there are rows, or name the columns by source.files.types": (
        json("{}\n"),
        [(json('{"a": 1}\n'), 1), (json("{}\n", types={"a": "int64"}), 1)],
    ),
    # Parquet
    "replace or remove it, or let the path match the Parquet files only (folder/*.parquet)": (
        Source({"a.parquet": NUMBERS, "b.txt": b"text"}, {"format": "parquet"}),
        [
            (Source({"a.parquet": NUMBERS, "b.txt": NUMBERS}, {"format": "parquet"}), 4),
            (Source({"a.parquet": NUMBERS}, {"format": "parquet"}), 2),
            (Source({"a.parquet": NUMBERS, "b.txt": b"text"}, {"format": "parquet"}, ("*.parquet",)), 2),
        ],
    ),
    "rename one of them": (
        folder(parquet_of(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))),
        [(folder(parquet(a=[1], b=[2])), 1)],
    ),
    # folders key=value
    "rename the folder, or set source.files.partitions: Ignore if folders are no columns": (
        Source({"y=%ff/a.parquet": NUMBERS}, {"format": "parquet"}),
        [
            (Source({"y=ff/a.parquet": NUMBERS}, {"format": "parquet"}), 2),
            (Source({"y=%ff/a.parquet": NUMBERS}, {"format": "parquet", "partitions": "Ignore"}), 2),
        ],
    ),
    "move one of them, or set source.files.partitions: Ignore if their folders are no columns": (
        Source({"y=1/a.parquet": NUMBERS, "b.parquet": NUMBERS}, {"format": "parquet"}),
        [
            (Source({"y=1/a.parquet": NUMBERS, "y=2/b.parquet": NUMBERS}, {"format": "parquet"}), 4),
            (Source({"y=1/a.parquet": NUMBERS, "b.parquet": NUMBERS}, {"format": "parquet", "partitions": "Ignore"}), 4),
        ],
    ),
    "set source.files.partitions: Ignore to take the file's own, or rename the folder": (
        Source({"a=1/a.parquet": NUMBERS}, {"format": "parquet"}),
        [
            (Source({"a=1/a.parquet": NUMBERS}, {"format": "parquet", "partitions": "Ignore"}), 2),
            (Source({"b=1/a.parquet": NUMBERS}, {"format": "parquet"}), 2),
        ],
    ),
    "and rows of text are found by columns of their own; add one of {}": (
        Source({"y=1/a.csv": b"a\n1\n"}, {"format": "csv", "columns": ["y"]}),
        [(Source({"y=1/a.csv": b"a\n1\n"}, {"format": "csv", "columns": ["y", "a"]}), 1)],
    ),
    "files have types of their own; leave it out, or cast in a step": (
        Source({"a.parquet": NUMBERS}, {"format": "parquet", "types": {"a": "string"}}),
        [(Source({"a.parquet": NUMBERS}, {"format": "parquet"}), 2)],
    ),
    "give the column a type that holds all its values by source.files.types, or rename the folder": (
        Source({"y=x/a.parquet": NUMBERS}, {"format": "parquet", "types": {"y": "date"}}),
        [
            (Source({"y=x/a.parquet": NUMBERS}, {"format": "parquet", "types": {"y": "string"}}), 2),
            (Source({"y=2025-01-05/a.parquet": NUMBERS}, {"format": "parquet", "types": {"y": "date"}}), 2),
        ],
    ),
    # any file
    "{} ({}); correct the path{}": (
        Source({"_a.parquet": NUMBERS}, {"format": "parquet"}),
        [(Source({"_a.parquet": NUMBERS}, {"format": "parquet"}, ("_a.parquet",)), 2)],
    ),
    "or put the files there": (Source({}, {"format": "parquet"}), [(folder(NUMBERS), 2)]),
    "convert it to UTF-8": (csv("a\n1\n".encode("utf-16")), [(csv("a\n1\n"), 1)]),
    "correct source.files.format or the path": (
        Source({"a.csv": b"a\n1\n", "b": NUMBERS}, {"format": "csv"}, ("b",)),
        [
            (Source({"a.csv": b"a\n1\n", "b": NUMBERS}, {"format": "parquet"}, ("b",)), 2),
            (Source({"a.csv": b"a\n1\n", "b": NUMBERS}, {"format": "csv"}, ("a.csv",)), 1),
        ],
    ),
    "recompress it with gzip (or set source.files.compression: None, if it is plain text)": (
        csv("a\n1\n", name="x.csv.zst"),
        [
            (csv(gzip.compress(b"a\n1\n"), name="x.csv.gz"), 1),
            (csv("a\n1\n", name="x.csv.zst", compression="None"), 1),
        ],
    ),
    "replace it, or correct source.files.compression": (
        csv("a\n1\n", name="x.csv.gz"),
        [
            (csv(gzip.compress(b"a\n1\n"), name="x.csv.gz"), 1),
            (csv("a\n1\n", name="x.csv.gz", compression="None"), 1),
        ],
    ),
    # columns that do not go together
    "rewrite one of them, leave the column out by source.columns (as long as nothing is sealed), {}{}": (
        folder(parquet(a=[1], b=[1]), parquet(a=["x"], b=[2])),
        [
            (folder(parquet(a=[1], b=[1]), parquet(a=[2], b=[2])), 2),
            (folder(parquet(a=[1], b=[1]), parquet(a=["x"], b=[2]), columns=["b"]), 2),
        ],
    ),
    "rewrite one of them, leave the column out by source.columns (as long as nothing is sealed), say schema: Unite, {}": (
        folder(parquet(a=[1]), parquet(a=[1], b=[1]), schema="Same"),
        [
            (folder(parquet(a=[1], b=[1]), parquet(a=[1], b=[1]), schema="Same"), 2),
            (folder(parquet(a=[1]), parquet(a=[1], b=[1]), schema="Same", columns=["a"]), 2),
            (folder(parquet(a=[1]), parquet(a=[1], b=[1]), schema="Unite"), 2),
        ],
    ),
    "take one of them out of the source, rewrite it, {}": (
        folder(NUMBERS, OTHERS),
        [(folder(NUMBERS), 2), (folder(OTHERS), 1), (folder(NUMBERS, parquet(a=[3], b=["y"])), 3)],
    ),
    "or use one write for each kind": (folder(NUMBERS, TEXTS), [(folder(NUMBERS), 2), (folder(TEXTS), 1)]),
    "rewrite one of them, leave one of the columns out by source.columns (as long as nothing is sealed), {}": (
        folder(parquet(ID=[1], n=[1]), parquet(id=[2], n=[2])),
        [
            (folder(parquet(id=[1], n=[1]), parquet(id=[2], n=[2])), 2),
            (folder(parquet(ID=[1], n=[1]), parquet(id=[2], n=[2]), columns=["n", "ID"]), 2),
            (folder(parquet(ID=[1], n=[1])), 1),
        ],
    ),
    "{} {} {} ({} {}); correct source.columns{}": (
        folder(NUMBERS, columns=["A"]),
        [(folder(NUMBERS, columns=["a"]), 2)],
    ),
}


def rows_in(place: Path, source: Source) -> list[Row]:
    place.mkdir()
    for name, data in source.files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(data)
    says = dict(source.says)
    reader = open_reader(says.pop("format"), sets_apart=source.sets_apart, **_options(says))
    files, schema = reader.describe([os.path.join(place, path) for path in source.paths])
    chunks = [chunk for file in files for chunk in chunks_of(reader, file, whole(file), schema)]
    return [row for chunk in chunks for row in chunk.batch.to_pylist()]


def _options(says: Mapping[str, Any]) -> dict[str, Any]:
    of_csv = {**says.get("csv", {}), **({"compression": says["compression"]} if "compression" in says else {})}
    return {**{name: value for name, value in says.items() if name not in ("csv", "compression")}, "options": of_csv}


@pytest.mark.parametrize("says", WAYS_OUT)
def test_a_source_is_read_once_somebody_has_done_what_the_message_says(tmp_path: Path, says: str) -> None:
    source, ways = WAYS_OUT[says]

    with pytest.raises(NeedsChange) as refused:
        rows_in(tmp_path / "refused", source)
    assert _in_order(says.split("{}"), refused.value.message), refused.value.message

    for number, (corrected, rows) in enumerate(ways):
        assert len(rows_in(tmp_path / str(number), corrected)) == rows


def _in_order(parts: Iterable[str], text: str) -> bool:
    position = 0
    for part in parts:
        position = text.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


def test_a_file_whose_name_is_not_utf8_is_read_once_it_has_another_one(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xe9.csv"
    with open(path, "wb") as file:
        file.write(b"a\n1\n")
    reader = open_reader("csv")

    with pytest.raises(NeedsChange, match="its name is not UTF-8, so that it cannot be recorded; rename it"):
        reader.describe([str(tmp_path)])

    os.rename(path, tmp_path / "e.csv")
    (described,), _ = reader.describe([str(tmp_path)])
    assert described.path == str(tmp_path / "e.csv")
