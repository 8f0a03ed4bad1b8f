"""What a Lance dataset costs the operator in memory when it is opened: measured, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from checkpoint_formats.lance import datasets
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import Tenant
from tests.support.peaks import Peak, peaks
from tests.support.places import LancePlace, Place, on_disk, on_s3
from tests.support.slow import slow_except


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return on_disk(tmp_path, "lance")
    return on_s3(tmp_path, "lance", request.getfixturevalue("s3_server"))


@pytest.fixture(scope="module")
def measured() -> dict[str, Peak]:
    return peaks("tests.contract.hostile_datasets", "CASES")


@pytest.mark.parametrize("name", ["the newest", "a version"])
def test_a_manifest_that_is_too_large_is_refused_by_its_size(name: str, measured: dict[str, Peak]) -> None:
    peak = measured[name]

    assert "the manifest of the Lance dataset" in peak.returned
    assert peak.megabytes < 24


def test_a_manifest_within_the_bound_takes_a_part_of_the_memory_that_the_operator_has(measured: dict[str, Peak]) -> None:
    peak = measured["one within the bound"]

    assert peak.returned == "1"
    assert peak.megabytes < 8 * datasets.MOST_MANIFEST_BYTES / 2**20


@pytest.mark.parametrize("named_in_reverse", slow_except([True, False], True))
def test_a_dataset_is_opened_again_once_its_schema_says_less(place: LancePlace, named_in_reverse: bool) -> None:
    settings = place.settings.used_by(Tenant("team", is_only=True))
    schema = pa.schema([("id", pa.int64())], metadata={"filler": "x" * datasets.MOST_MANIFEST_BYTES})
    rows = pa.table({"id": [1]}, schema=schema)
    dataset = lance.write_dataset(rows, place.uri, storage_options=place.options, enable_v2_manifest_paths=named_in_reverse)
    for version in (None, 1):
        with pytest.raises(NeedsChange, match="update_schema_metadata") as refused:
            datasets.open_dataset(place.uri, settings, version)
        assert refused.value.reason == reasons.TABLE_UNSUPPORTED

    dataset.update_schema_metadata({}, replace=True)

    assert datasets.open_dataset(place.uri, settings) is not None
    assert datasets.open_dataset(place.uri, place.settings, 1) is not None, "a driver has the memory that its manifest gives it"
