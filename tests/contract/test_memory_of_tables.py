"""What manifests and their lists cost the operator in memory: measured, each in a process of its own."""

from __future__ import annotations

import pytest

from tests.support.peaks import Peak, peaks

#: What any work takes besides.
_BESIDES_MB = 6


@pytest.fixture(scope="module")
def measured() -> dict[str, Peak]:
    return peaks("tests.contract.hostile_tables", "CASES")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["summaries", "manifests", "files", "columns", "bounds", "a usual manifest"])
def test_a_manifest_or_a_list_of_any_shape_takes_no_more_memory_than_was_waited_for(name: str, measured: dict[str, Peak]) -> None:
    peak = measured[name]

    assert peak.megabytes < int(peak.returned) + _BESIDES_MB
