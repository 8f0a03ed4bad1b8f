"""Records: their stored forms are fixed, and whatever else lies there is Corrupt and named, never "not there"."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from checkpoint_protocol import reasons, records
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.records import (
    MAX_RECORD_BYTES,
    ClosedRecord,
    FailureRecord,
    NameRecord,
    PlanRecord,
    Record,
    Seal,
    WriteRecord,
    decode,
    encode,
)
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.rows.positions import Range
from tests.golden.samples import FOLDER, SAMPLES
from tests.support.effort import examples
from tests.support.records import TOKEN

WHERE = "s3://bucket/checkpoints/some/object.json"


def golden(name: str) -> bytes:
    return (FOLDER / f"{name}.json").read_bytes()


def kinds() -> dict[str, type[Record]]:
    return {str(model.model_fields["kind"].default): model for model in Record.__subclasses__()}


def assert_corrupt(model: type[Record], data: bytes) -> str:
    with pytest.raises(Corrupt) as caught:
        decode(model, data, WHERE)
    assert caught.value.reason == reasons.RECORD_UNREADABLE
    assert caught.value.message.startswith(WHERE)
    return caught.value.message


# --- golden files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_a_stored_record_of_an_earlier_release_is_read_and_written_back_with_all_that_it_said(name: str) -> None:
    record = decode(type(SAMPLES[name]), golden(name), WHERE)

    assert record == SAMPLES[name]
    assert_says_all_of(json.loads(golden(name)), json.loads(encode(record)), name)


def assert_says_all_of(before: object, now: object, where: str) -> None:
    """What was said is said in the same words; fields that came later may stand beside it."""
    if isinstance(before, dict):
        assert isinstance(now, dict), where
        for field, value in before.items():
            assert field in now, f"{where}.{field}"
            assert_says_all_of(value, now[field], f"{where}.{field}")
    elif isinstance(before, list):
        assert isinstance(now, list), where
        assert len(now) == len(before), where
        for number, value in enumerate(before):
            assert_says_all_of(value, now[number], f"{where}.{number}")
    else:
        assert now == before, where


def test_there_is_one_golden_file_for_each_sample_and_no_other() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} == {f"{name}.json" for name in SAMPLES}


def test_every_record_kind_has_a_golden_file() -> None:
    assert {type(sample) for sample in SAMPLES.values()} == set(kinds().values())
    assert len(kinds()) == len(Record.__subclasses__()), "two records have one kind"


def test_every_union_member_and_part_occurs_in_a_golden_file() -> None:
    def parts_in(value: object) -> set[type[BaseModel]]:
        if isinstance(value, BaseModel):
            inner = [parts_in(getattr(value, field)) for field in type(value).model_fields]
            return {type(value)}.union(*inner)
        if isinstance(value, tuple):
            return set().union(*map(parts_in, value))
        if is_dataclass(value):
            return set().union(*(parts_in(getattr(value, field.name)) for field in fields(value)))
        return set()

    found = set().union(*map(parts_in, SAMPLES.values()))
    declared = {
        part
        for part in vars(records).values()
        if isinstance(part, type) and issubclass(part, records.Part) and part not in (records.Part, Record)
    }

    assert declared <= found


def pydantic_fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a model or of a dataclass of pydantic's."""
    return dict(kind.__pydantic_fields__)


def test_every_optional_field_is_said_in_one_golden_file_and_null_in_another() -> None:
    said: dict[str, set[bool]] = {}

    def visit(value: object) -> None:
        if isinstance(value, records.Part | SourceFile | Range):
            for name, field in pydantic_fields(type(value)).items():
                inner = getattr(value, name)
                if type(None) in getattr(field.annotation, "__args__", ()):
                    said.setdefault(f"{type(value).__name__}.{name}", set()).add(inner is None)
                visit(inner)
        elif isinstance(value, tuple):
            for item in value:
                visit(item)

    for sample in SAMPLES.values():
        visit(sample)

    assert said
    assert {name for name, seen in said.items() if seen != {True, False}} == set()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_stored_record_says_its_kind_version_and_token(name: str) -> None:
    plain = json.loads(golden(name))

    assert plain["kind"] == type(SAMPLES[name]).model_fields["kind"].default
    assert plain["version"] == type(SAMPLES[name]).model_fields["version"].default
    assert re.fullmatch(r"[0-9a-f]{32}", plain["token"])


# --- what is not a record -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("version", [0, 1, 2, 99, None, "1", 1.5])
def test_an_unknown_version_is_corrupt_and_says_so(name: str, version: object) -> None:
    if version == json.loads(golden(name))["version"]:
        version = 98
    plain = {**json.loads(golden(name)), "version": version}

    message = assert_corrupt(type(SAMPLES[name]), json.dumps(plain).encode())

    assert f"version {version!r}" in message
    assert "another release" in message


def test_a_later_version_with_unknown_fields_is_told_as_a_version_and_not_as_a_typo() -> None:
    plain = {"kind": "seal", "version": 2, "who": "a later release", "token": TOKEN}

    assert "is a seal record of version 2" in assert_corrupt(Seal, json.dumps(plain).encode())


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("field", ["kind", "version", "token"])
def test_a_record_that_does_not_say_what_it_is_is_corrupt(name: str, field: str) -> None:
    plain = json.loads(golden(name))
    del plain[field]

    assert_corrupt(type(SAMPLES[name]), json.dumps(plain).encode())


@pytest.mark.parametrize("kind", kinds())
def test_a_record_of_another_kind_is_corrupt(kind: str) -> None:
    for name, sample in SAMPLES.items():
        if type(sample) is not kinds()[kind]:
            assert_corrupt(kinds()[kind], golden(name))


@pytest.mark.parametrize("name", SAMPLES)
def test_an_unknown_field_is_corrupt(name: str) -> None:
    assert_corrupt(type(SAMPLES[name]), json.dumps({**json.loads(golden(name)), "extra": 1}).encode())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_truncated_record_is_corrupt_wherever_it_ends(name: str) -> None:
    data = golden(name)
    for length in {0, 1, len(data) // 3, len(data) // 2, len(data) - 1}:
        assert_corrupt(type(SAMPLES[name]), data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"5",
        b'"text"',
        b"{}",
        b"\x00" * 100,
        b"\xff\xfe{}",
        b"PAR1",
        b"<html>503 Slow Down</html>",
        b'{"token":"\xff"}',
        b'{"token":"\\ud800"}',
        b"{" * 5,
        b'{"version":' + b"9" * 5_000 + b"}",
    ],
)
def test_what_is_no_record_at_all_is_corrupt(data: bytes) -> None:
    for model in kinds().values():
        assert_corrupt(model, data)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"kind":"write","version":1,"identity":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_what_is_nested_beyond_all_bounds_is_corrupt(data: bytes) -> None:
    assert_corrupt(WriteRecord, data)


def test_what_is_larger_than_any_record_is_corrupt_and_not_parsed() -> None:
    data = golden("name")

    most = NameRecord.most_bytes
    assert f"no name record is larger than {most}" in assert_corrupt(NameRecord, data.ljust(most + 1))
    assert decode(NameRecord, data.ljust(most), WHERE) == SAMPLES["name"]


@given(st.sampled_from(sorted(SAMPLES)), st.data())
@settings(deadline=None, max_examples=examples(300))
def test_a_flipped_byte_gives_another_record_or_corrupt_and_nothing_else(name: str, data: st.DataObject) -> None:
    stored = bytearray(golden(name))
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))

    try:
        read = decode(type(SAMPLES[name]), bytes(stored), WHERE)
    except Corrupt:
        return
    assert read != SAMPLES[name], "only what was stored reads as what was stored"


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_random_bytes_are_corrupt(data: bytes) -> None:
    for model in kinds().values():
        assert_corrupt(model, data)


# --- bounds of fields -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("name", "token", "ABC"),
        ("name", "token", "0" * 31 + "G"),
        ("name", "token", "0" * 32 + "\n"),
        ("write", "identity_digest", "0" * 63),
        ("input", "arrow_schema", "not base64!"),
        ("input", "arrow_schema", "ü"),
        ("input", "files.0.unit", "lines"),
        ("input", "files.0.size_bytes", -1),
        ("input", "files.0.size_bytes", 1 << 63),
        ("input", "files.0.size_bytes", "1000"),
        ("input", "files.0.size_bytes", 1000.5),
        ("launch-iceberg", "attempt", 0),
        ("launch-iceberg", "attempt", 1 << 31),
        ("launch-iceberg", "target.format", "hudi"),
        ("launch-iceberg", "interval_s", 0),
        ("launch-iceberg", "interval_s", None),
        ("launch-iceberg", "source.format", "xml"),
        ("plan", "tasks.0.0.start", 101),
        ("plan", "tasks.0.0.file", -1),
        ("failure", "family", "Superseded"),
        ("failure", "message", "x" * 40_000),
        ("seal-iceberg", "covered.kind", "keys"),
        ("seal-iceberg", "files.0.format", "orc"),
        ("seal-iceberg", "files.0.partition.0", "?"),
        ("seal-iceberg", "rows_written", True),
        ("seal-iceberg", "last", 1),
        ("seal-lance", "files.0.files.0.fields.0", "0"),
        ("closed-without-plan", "complete", True),
        ("closed-without-plan", "chain_lengths", [1]),
        ("claim-lance", "base.at_version", 0),
        ("claim-lance", "index", -1),
    ],
)
def test_a_value_outside_its_bounds_is_corrupt_and_its_field_is_named(name: str, path: str, value: object) -> None:
    plain: Any = json.loads(golden(name))
    place = plain
    *folders, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in folders:
        place = place[part]
    place[last] = value

    message = assert_corrupt(type(SAMPLES[name]), json.dumps(plain).encode())

    if name != "closed-without-plan":
        assert str(folders[0] if folders else last) in message


def test_a_message_never_repeats_what_the_object_holds() -> None:
    plain = {**json.loads(golden("failure")), "attempt": "a secret"}

    assert "a secret" not in assert_corrupt(FailureRecord, json.dumps(plain).encode())


def test_an_attempt_without_a_plan_is_never_made_complete() -> None:
    with pytest.raises(ValidationError, match="no seals that count"):
        ClosedRecord(token=TOKEN, attempt=1, plan_token=None, chain_lengths=(), complete=True)


def test_a_plan_of_a_hundred_thousand_tasks_is_within_the_bounds() -> None:
    task = ({"file": 1, "start": 1 << 40, "end": (1 << 40) + 1},)
    plain = {**json.loads(golden("plan")), "tasks": [task] * 100_000}

    record = decode(PlanRecord, json.dumps(plain).encode(), WHERE)

    assert len(encode(record)) < MAX_RECORD_BYTES


def test_a_failure_that_quotes_a_file_name_which_is_no_utf8_can_be_recorded() -> None:
    name = b"gr\xf6\xdfe.csv".decode("utf-8", "surrogateescape")
    record = FailureRecord(token=TOKEN, attempt=1, family="NeedsChange", reason="CodeFailed", message=f"no such file: {name}")

    assert decode(FailureRecord, encode(record), WHERE) == record
    assert record.message == "no such file: gr\\udcf6\\udcdfe.csv"
