"""What an epoch takes of the files of a source: new ones whole, and of those that it knows the rows that are tried again."""

from __future__ import annotations

from typing import Literal

import pytest

from checkpoint_formats.rows.selecting import Selection
from checkpoint_formats.taking import EarlierOf, Taking, choose
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records.inputs import SourceFile
from tests.support.records import launch

ROWS = ((3, 5), (8, 9))


def file_at(path: str, etag: str = "1") -> SourceFile:
    return SourceFile(path=path, etag=etag, size_bytes=100, unit="rows", end=10)


OLD, NEW = file_at("/in/old"), file_at("/in/new")


def taking(retry: Literal["Also", "Only", "Never"] = "Also", on_replaced: Literal["Fail", "Skip", "Process"] = "Fail") -> Taking:
    orders = launch()
    orders = orders.model_copy(
        update={"quarantine": orders.quarantine.model_copy(update={"retry": retry}), "on_replaced": on_replaced}
    )
    earlier = EarlierOf(again={(OLD.path, OLD.etag): ROWS})
    return Taking(orders, 0, Selection(), StorageSettings(), earlier, found=(), identify=lambda path: path)


def taken(files: list[SourceFile], of: Taking) -> list[tuple[str, object]]:
    return [(file.path, file.only) for file in choose(files, lambda file: file.path == NEW.path, of)]


def test_of_a_known_file_the_rows_that_are_tried_again_are_taken_and_a_new_one_whole() -> None:
    assert taken([OLD, NEW], taking()) == [(OLD.path, ROWS), (NEW.path, None)]


def test_where_only_rows_are_tried_again_nothing_new_is_taken() -> None:
    assert taken([OLD, NEW], taking(retry="Only")) == [(OLD.path, ROWS)]


@pytest.mark.parametrize("now", [[NEW], [file_at(OLD.path, etag="2"), NEW]], ids=["gone", "replaced"])
def test_rows_whose_file_is_not_there_as_it_was_are_refused_and_not_lost(now: list[SourceFile]) -> None:
    with pytest.raises(NeedsChange, match=f"2 quarantined rows of {OLD.path} are to be tried again") as caught:
        taken(now, taking())
    assert caught.value.reason == reasons.SOURCE_CHANGED


@pytest.mark.parametrize("on_replaced", ["Skip", "Process"])
def test_rows_of_a_file_that_was_replaced_are_passed_over_where_the_manifest_says_so(
    on_replaced: Literal["Skip", "Process"],
) -> None:
    assert taken([file_at(OLD.path, etag="2"), NEW], taking(on_replaced=on_replaced)) == [(NEW.path, None)]
