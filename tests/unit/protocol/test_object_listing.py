"""Listings in parts: every object once, and never more of a part than is held at a time."""

from __future__ import annotations

import obstore
import pytest
from obstore.store import MemoryStore

from checkpoint_protocol import reasons
from checkpoint_protocol.store import object_listing
from checkpoint_protocol.store.object_listing import NotListed, list_objects


@pytest.mark.parametrize("most", [1, 7, 50, 51, 1_000])
def test_a_part_with_more_objects_than_are_held_at_a_time_is_listed_to_its_end(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write there could put any number of them between two borders."""
    monkeypatch.setattr(object_listing, "_MOST_OF_A_PART", most)
    store = MemoryStore()
    paths = [f"seals/{task}/{link}.json" for task, links in ((0, 300), (1, 1), (2, 51), (3, 0), (4, 2)) for link in range(links)]
    for path in paths:
        obstore.put(store, path, b"")

    listed = list_objects(store, "seals", [f"seals/{task}/" for task in range(5)], expected=100_000)

    assert sorted(meta["path"] for meta in listed) == sorted(paths)


def test_a_folder_that_a_name_hides_is_told_by_its_own_reason() -> None:
    error = NotListed("s3://b/x/", "'a'")

    assert error.reason == reasons.FOLDER_NOT_LISTED
    assert "remove that object" in error.message
