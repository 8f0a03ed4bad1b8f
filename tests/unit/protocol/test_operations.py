"""The operation: read from the manifest in one place, told to drivers and committers by the launch record."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from checkpoint_commit.changes import StagedChange, changes_nothing, only
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import Append, IcebergFile, LaunchRecord, StagedFile, decode, encode, operation_of
from tests.support.records import iceberg_file, lance_fragment, launch


def test_a_manifest_that_says_no_mode_asks_for_an_append() -> None:
    assert operation_of(Sink.model_validate({"none": {}}), None) == Append()


def test_an_append_is_not_said_in_a_launch_record_as_releases_have_it_that_know_nothing_else() -> None:
    assert "operation" not in json.loads(encode(launch()))
    assert decode(LaunchRecord, encode(launch()), "launch/1.json").operation == Append()


def test_an_operation_of_a_later_release_is_corrupt_and_never_taken_for_an_append() -> None:
    told = {**json.loads(encode(launch())), "operation": {"kind": "Overwrite"}}

    with pytest.raises(Corrupt, match="operation"):
        decode(LaunchRecord, json.dumps(told).encode(), "launch/1.json")


def test_an_append_without_files_changes_nothing() -> None:
    assert changes_nothing(StagedChange(Append(), ()), has_table=True)
    assert not changes_nothing(StagedChange(Append(), (iceberg_file(),)), has_table=True)


def test_a_staged_file_that_an_operation_does_not_take_is_refused_by_its_name() -> None:
    files: list[StagedFile] = [iceberg_file("a.parquet"), lance_fragment("b.lance", "c.lance")]

    with pytest.raises(NeedsChange, match=r"the lance file b\.lance, c\.lance, which cannot be committed to db\.rows") as caught:
        list(only(IcebergFile, files, "db.rows"))
    assert caught.value.reason == reasons.STAGED_RESULT_REFUSED


def test_every_kind_of_staged_file_names_its_objects() -> None:
    (union, _) = get_args(StagedFile)

    assert all(hasattr(kind, "paths") for kind in get_args(union))
