"""What seals say of staged files is refused before anything is claimed where it cannot be so: readers would believe it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from checkpoint_operator.commit.iceberg_checks import FileChecks
from checkpoint_operator.commit.lance_checks import FragmentChecks
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
    schema_id=3,
)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def file(*metrics: FieldMetrics, **changed: Any) -> IcebergFile:
    return iceberg_file(rows=10).model_copy(update={"schema_id": 3, "metrics": tuple(map(tuple, metrics)), **changed})


def iceberg_problem(given: IcebergFile) -> str | None:
    return FileChecks({3: SCHEMA}).problem_of(given)


HONEST = (
    FieldMetrics(1, 30, 10, 0, None, text(b"8 bytes."), text(b"8 bytes!")),
    FieldMetrics(2, 30, 10, 10, None, "", text("größe".encode())),
    FieldMetrics(3, None, 10, 3, None, text(b"4byt"), None),
    FieldMetrics(4, None, 10, 0, None, text(b"\x01"), text(b"\x7f" * 13)),
    FieldMetrics(5, None, 10, 0, None, text(b"4byt"), text(b"4byt")),
    FieldMetrics(6, None, 10, 0, None, text(b"u" * 16), text(b"u" * 16)),
    FieldMetrics(7, None, 10, 0, None, "", text(b"\xff\xfe")),
    FieldMetrics(9, None, 5_000, 4_000, None, text(b"a"), text(b"b")),
    FieldMetrics(11, None, 10, 9, 1, text(b"8 bytes."), text(b"8 bytes.")),
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
    ],
)
def test_what_cannot_be_so_of_an_iceberg_file_is_named(given: IcebergFile, told: str | None) -> None:
    found = iceberg_problem(given)

    assert (found is None) if told is None else (found is not None and told in found)


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
        ("2.2", fragment((8, 2, 0), (2, 2))),
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
