"""What seals say of staged files is refused before anything is claimed where it cannot be so: readers would believe it."""

from __future__ import annotations

import base64
import struct
from typing import Any, Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from checkpoint_commit.iceberg.metadata.checks import FileChecks
from checkpoint_commit.lance.files.checks import FragmentChecks
from checkpoint_protocol.records import FieldMetrics, IcebergFile, LanceDataFile, LanceField, LanceFragment
from tests.support.records import LANCE, iceberg_file

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "small", IntegerType(), required=False),
    NestedField(4, "amount", DecimalType(30, 2), required=False),
    NestedField(5, "hash", FixedType(4), required=False),
    NestedField(6, "uuid", UUIDType(), required=False),
    NestedField(7, "raw", BinaryType(), required=False),
    NestedField(8, "tags", ListType(9, StringType(), element_required=False), required=False),
    NestedField(10, "of", StructType(NestedField(11, "inner", LongType(), required=False)), required=False),
    NestedField(12, "ratio", DoubleType(), required=False),
    NestedField(13, "share", FloatType(), required=False),
    NestedField(14, "flag", BooleanType(), required=False),
    NestedField(15, "day", DateType(), required=False),
    schema_id=3,
)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def number(form: str, value: float) -> str:
    return text(struct.pack(form, value))


def file(*metrics: FieldMetrics, **changed: Any) -> IcebergFile:
    return iceberg_file(rows=10).model_copy(update={"schema_id": 3, "metrics": tuple(map(tuple, metrics)), **changed})


def iceberg_problem(given: IcebergFile) -> str | None:
    return FileChecks({3: SCHEMA}).problem_of(given)


HONEST = (
    FieldMetrics(1, 30, 10, 0, None, text(b"8 bytes!"), text(b"8 bytes.")),
    FieldMetrics(2, 30, 10, 10, None, "", text("größe".encode())),
    FieldMetrics(3, None, 10, 3, None, text(b"4byt"), None),
    FieldMetrics(4, None, 10, 0, None, text(b"\x01"), text(b"\x7f" * 13)),
    FieldMetrics(5, None, 10, 0, None, text(b"4byt"), text(b"4byt")),
    FieldMetrics(6, None, 10, 0, None, text(b"u" * 16), text(b"u" * 16)),
    FieldMetrics(7, None, 10, 0, None, "", text(b"\xff\xfe")),
    FieldMetrics(9, None, 5_000, 4_000, None, text(b"a"), text(b"b")),
    FieldMetrics(11, None, 10, 9, 1, text(b"8 bytes."), text(b"8 bytes.")),
    FieldMetrics(12, None, 10, 0, 10, None, None),
    FieldMetrics(13, None, 10, 0, 1, number("<f", -1.5), number("<f", float("inf"))),
    FieldMetrics(14, None, 10, 0, None, text(b"\x00"), text(b"\x01")),
    FieldMetrics(15, None, 10, 0, None, number("<i", -5), number("<i", 4)),
)


def test_what_a_stager_says_is_taken() -> None:
    assert iceberg_problem(file(*HONEST, split_offsets=(4, 50, 99))) is None
    assert iceberg_problem(file()) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (file(rows=0), "0 rows"),
        (file(rows=1 << 62), "4611686018427387904 rows"),
        (file(size_bytes=0), "no bytes"),
        (file(split_offsets=(4, 4)), "split offset 4"),
        (file(split_offsets=(50, 4)), "split offset 4"),
        (file(split_offsets=(4, 100)), "split offset 100"),
        (file(schema_id=4), "unknown schema 4"),
        (file(FieldMetrics(1 << 40)), "field id 1099511627776"),
        (file(FieldMetrics(8)), None),
        (file(FieldMetrics(1), FieldMetrics(1)), "twice"),
        (file(FieldMetrics(1, value_count=11)), "11 values in 10 rows"),
        (file(FieldMetrics(11, value_count=11)), "'inner' has 11 values in 10 rows"),
        (file(FieldMetrics(1, value_count=10, null_count=11)), "11 values of 10"),
        (file(FieldMetrics(1, value_count=10, nan_count=11)), "11 values of 10"),
        (file(FieldMetrics(1, lower=text(b"x"))), "a bound of the column 'id'"),
        (file(FieldMetrics(1, upper=text(b"nine byte"))), "a bound of the column 'id'"),
        (file(FieldMetrics(1, upper=text(b"seven b"))), "a bound of the column 'id'"),
        (file(FieldMetrics(1, lower="")), "a bound of the column 'id'"),
        (file(FieldMetrics(2, lower=text(b"\xff"))), "a bound of the column 'text'"),
        (file(FieldMetrics(3, lower=text(b"5 byt"))), "a bound of the column 'small'"),
        (file(FieldMetrics(4, lower=text(b"x" * 17))), "a bound of the column 'amount'"),
        (file(FieldMetrics(4, lower="")), "a bound of the column 'amount'"),
        (file(FieldMetrics(5, lower=text(b"5 byt"))), "a bound of the column 'hash'"),
        (file(FieldMetrics(6, lower=text(b"x" * 15))), "a bound of the column 'uuid'"),
        (file(FieldMetrics(10, lower=text(b"x"))), "a bound of the column 'of'"),
        (file(FieldMetrics(10)), None),
        (file(FieldMetrics(12, lower=number("<d", float("nan")))), "a bound of the column 'ratio'"),
        (file(FieldMetrics(13, upper=number("<f", float("nan")))), "a bound of the column 'share'"),
        (file(FieldMetrics(12, lower=number("<f", 1))), "a bound of the column 'ratio'"),
        (file(FieldMetrics(1, lower=number("<q", 1), upper=number("<q", -1))), "lower bound of the column 'id' is above"),
        (file(FieldMetrics(1, lower=number("<q", 256), upper=number("<q", 255))), "lower bound of the column 'id' is above"),
        (file(FieldMetrics(3, lower=number("<i", 0), upper=number("<i", -1))), "lower bound of the column 'small' is above"),
        (file(FieldMetrics(12, lower=number("<d", 0.5), upper=number("<d", -9.5))), "lower bound of the column 'ratio' is above"),
        (file(FieldMetrics(13, lower=number("<f", 0.5), upper=number("<f", 0.25))), "lower bound of the column 'share' is above"),
        (file(FieldMetrics(14, lower=text(b"\x01"), upper=text(b"\x00"))), "lower bound of the column 'flag' is above"),
        (file(FieldMetrics(2, lower=text("é".encode()), upper=text(b"z"))), "lower bound of the column 'text' is above"),
        (file(FieldMetrics(7, lower=text(b"\x80"), upper=text(b"\x7f"))), "lower bound of the column 'raw' is above"),
        (file(FieldMetrics(4, lower=text(b"\x01"), upper=text(b"\xff"))), "lower bound of the column 'amount' is above"),
        (file(FieldMetrics(4, lower=text(b"\xff"), upper=text(b"\x01"))), None),
        (file(FieldMetrics(1, column_size=101)), "'id' has 101 of its 100 bytes"),
        (file(FieldMetrics(2), FieldMetrics(1, column_size=101)), "'id' has 101 of its 100 bytes"),
        (file(FieldMetrics(9, value_count=1 << 41)), "has 2199023255552 values"),
    ],
)
def test_what_cannot_be_so_of_an_iceberg_file_is_named(given: IcebergFile, told: str | None) -> None:
    found = iceberg_problem(given)

    assert (found is None) if told is None else (found is not None and told in found)


BOUNDS: Final = {3: {2: 64, 7: 16, 9: 64}}


@pytest.mark.parametrize(
    ("field_id", "length", "is_too_long"),
    [(2, 64, False), (2, 65, True), (7, 16, False), (7, 17, True), (9, 64, False), (9, 22 << 20, True)],
)
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_bound_is_no_longer_than_its_table_has_them(field_id: int, length: int, is_too_long: bool, side: str) -> None:
    bound = text(b"x" * length)
    given = file(FieldMetrics(field_id, lower=bound) if side == "lower" else FieldMetrics(field_id, upper=bound))

    problem = FileChecks({3: SCHEMA}, BOUNDS).problem_of(given)

    assert (problem is not None and "is longer than those that are staged" in problem) == is_too_long


def test_a_bound_is_not_endless_where_nothing_says_how_long_it_is() -> None:
    assert "longer" in (iceberg_problem(file(FieldMetrics(2, upper=text(b"x" * 4_097)))) or "")
    assert iceberg_problem(file(FieldMetrics(2, upper=text(b"x" * 4_096)))) is None


def test_a_partition_value_is_not_endless() -> None:
    assert iceberg_problem(file(partition=(None, text(b"x" * (64 << 10))))) is None
    assert "partition value" in (iceberg_problem(file(partition=(text(b"x" * ((64 << 10) + 1)),))) or "")


# --- Lance ------------------------------------------------------------------------------------------------------------------

FIELDS = (
    LanceField(id=0, path="id", type="int64", nullable=True),
    LanceField(id=1, path="s", type="struct<x: int32>", nullable=True),
    LanceField(id=2, path="s.x", type="int32", nullable=True),
    LanceField(id=7, path="l", type="list<item: int32>", nullable=True),
    LanceField(id=8, path="l.item", type="int32", nullable=True),
)


def fragment(fields: tuple[int, ...], version: tuple[int, int] = (2, 1), rows: int = 5, **changed: Any) -> LanceFragment:
    made = LanceDataFile(
        path="a.lance",
        size_bytes=100,
        fields=fields,
        column_indices=tuple(range(len(fields))) if version != (0, 2) else (),
        major_version=version[0],
        minor_version=version[1],
    ).model_copy(update=changed)
    return LanceFragment(files=(made,), rows=rows)


def lance_problem(given: LanceFragment, storage_version: str = "2.1") -> str | None:
    return FragmentChecks([LANCE.model_copy(update={"fields": FIELDS, "storage_version": storage_version})]).problem_of(given)


@pytest.mark.parametrize(
    ("storage_version", "given"),
    [
        ("0.1", fragment((0, 1, 2, 7, 8), (0, 2))),
        ("2.0", fragment((0, 1, 2, 7, 8), (2, 0))),
        ("2.1", fragment((0, 2, 8))),
        ("2.1", fragment((0, 1, 8))),  # a struct that is packed into one column
        ("2.2", fragment((0, 2, 8), (2, 2))),
    ],
)
def test_what_lance_writes_is_taken(storage_version: str, given: LanceFragment) -> None:
    assert lance_problem(given, storage_version) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (LanceFragment(files=(), rows=5), "without a data file"),
        (fragment((0, 2, 8), rows=0), "0 rows"),
        (fragment((0, 2, 8), rows=1 << 62), "rows"),
        (fragment((0, 2, 8), size_bytes=0), "no bytes"),
        (fragment((0, 2, 8), column_indices=(0, 1)), "numbered"),
        (fragment((0, 2, 8), column_indices=(0, 0, 1)), "numbered"),
        (fragment((0, 2, 8), column_indices=(0, 1, 1 << 30)), "numbered"),
        (fragment((0, 2, 8), column_indices=()), "numbered"),
        (fragment((0, 2)), "the fields 0, 2 in file format 2.1"),
        (fragment((0, 2, 8, 8)), "each once"),
        (fragment((2, 0, 8)), "in this order"),
        (fragment((0, 2, 8, 99)), "0, 2, 8, 99"),
        (fragment((0, 2, 8), (2, 0)), "file format 2.0"),
        (fragment((0, 2, 8), (9, 9)), "file format 9.9"),
    ],
)
def test_what_cannot_be_so_of_a_lance_fragment_is_named(given: LanceFragment, told: str) -> None:
    found = lance_problem(given)

    assert found is not None
    assert told in found


def test_a_fragment_that_one_of_several_attempts_was_told_to_write_is_taken() -> None:
    before, after = (LANCE.model_copy(update={"fields": fields, "storage_version": "2.1"}) for fields in (FIELDS[:3], FIELDS))
    checks = FragmentChecks([before, after])

    assert checks.problem_of(fragment((0, 2))) is None
    assert checks.problem_of(fragment((0, 2, 8))) is None
    assert checks.problem_of(fragment((0, 8))) is not None
