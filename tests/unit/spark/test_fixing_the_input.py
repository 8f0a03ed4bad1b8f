"""The input of an epoch is what the first driver's look has put, for all; and never what an earlier epoch has taken."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import InputRecord, LaunchRecord, NoTarget
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.parts import Input
from checkpoint_work.inputs.epoch_input import Earlier, fix_input, list_source
from tests.support.records import end_epoch
from tests.support.sources import source_of
from tests.support.stores import MemoryStore

KEY = EpochKey("ab" * 16, 1)


def launch(folder: Path, on_replaced: Literal["Fail", "Process", "Skip"] = "Fail") -> LaunchRecord:
    return LaunchRecord(
        token="0" * 32,
        attempt=1,
        run_nonce="",
        source=source_of({"files": {"format": "csv", "paths": [str(folder)]}}),
        steps=(),
        code_digest="0" * 64,
        target=NoTarget(),
        sink_format="none",
        target_file_size_bytes=1,
        interval_s=60.0,
        minimum_bytes=0,
        counted=(),
        on_replaced=on_replaced,
    )


def record_of(*paths: str) -> InputRecord:
    files = (SourceFile(path=path, etag="1", size_bytes=1, unit="bytes", end=1) for path in paths)
    return InputRecord(token=new_token(), files=tuple(files), arrow_schema="")


def paths_of(record: Input) -> list[str]:
    return [file.path for file in record.files]


def look_again(ledger: Ledger, orders: LaunchRecord) -> Input:
    """Fix the input of an epoch as its first driver does, and let the epoch end."""

    def look(earlier: Earlier) -> InputRecord:
        return list_source(orders, StorageSettings(), "memory://checkpoints", earlier)

    fixed = fix_input(ledger, orders, look)
    end_epoch(ledger, orders)
    return fixed


def test_of_two_drivers_that_look_at_once_both_go_by_what_the_first_has_put(tmp_path: Path) -> None:
    store = MemoryStore()
    slow, fast = Ledger(store, KEY), Ledger(store, KEY)

    def look_while_another_comes(earlier: Earlier) -> InputRecord:
        fixed = fix_input(fast, launch(tmp_path), lambda earlier: record_of("a", "b"))
        assert paths_of(fixed) == ["a", "b"]
        return record_of("b")

    assert paths_of(fix_input(slow, launch(tmp_path), look_while_another_comes)) == ["a", "b"]
    assert paths_of(fix_input(slow, launch(tmp_path), lambda earlier: record_of("c"))) == ["a", "b"]


def test_without_the_input_of_an_earlier_epoch_nothing_is_taken(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id\n1\n")
    store = MemoryStore()
    first, second = Ledger(store, KEY), Ledger(store, dataclasses.replace(KEY, epoch=2))
    assert len(look_again(first, launch(tmp_path)).files) == 1
    store.delete([path for path in store.objects if path.endswith("/input.json")])

    with pytest.raises(Corrupt) as stopped:
        look_again(second, launch(tmp_path))

    assert stopped.value.reason == reasons.RECORD_UNREADABLE
    assert first.at.input in stopped.value.message
    assert second.inputs.read_input() is None


def test_a_known_file_with_another_etag_stops_the_next_epoch_unless_it_is_told_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n1\n")
    store = MemoryStore()
    look_again(Ledger(store, KEY), launch(tmp_path))
    path.write_text("id\n1\n2\n")
    second = Ledger(store, dataclasses.replace(KEY, epoch=2))

    with pytest.raises(NeedsChange) as stopped:
        look_again(second, launch(tmp_path))

    assert stopped.value.reason == reasons.SOURCE_CHANGED
    assert all(part in stopped.value.message for part in (str(path), "onReplaced: Process", "onReplaced: Skip"))
    assert second.inputs.read_input() is None
    assert look_again(second, launch(tmp_path, "Skip")).files == ()
    third = Ledger(store, dataclasses.replace(KEY, epoch=3))
    assert paths_of(look_again(third, launch(tmp_path, "Process"))) == [str(path)]


def test_a_known_file_that_is_as_it_was_is_not_taken_again(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id\n1\n")
    store = MemoryStore()
    look_again(Ledger(store, KEY), launch(tmp_path))
    (tmp_path / "y.csv").write_text("id\n2\n")
    second = look_again(Ledger(store, dataclasses.replace(KEY, epoch=2)), launch(tmp_path))
    assert paths_of(second) == [str(tmp_path / "y.csv")]
