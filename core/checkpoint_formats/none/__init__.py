"""No table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checkpoint_formats.port import Stager
    from checkpoint_protocol.records import NoTarget


def open_stager(*_: object) -> Stager:
    from checkpoint_formats.none.stager import NoStager

    return NoStager()


def columns_of(_: NoTarget) -> tuple[str, ...]:
    return ()
