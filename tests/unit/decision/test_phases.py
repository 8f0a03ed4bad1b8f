"""One vocabulary of phases: what stands in an object, what the commands say, and what the documentation explains."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from checkpoint_control.decision.actions import Action, Commit, Finish, Stall, Wait
from checkpoint_control.decision.observation import Attempt, DriverState, Failure
from checkpoint_control.decision.phases import MEANINGS, Phase, phase_after_error, phase_of
from checkpoint_control.views.stored_status import read_status
from checkpoint_operator.crd.definition import custom_resource_definition
from checkpoint_protocol import reasons, writes
from devtools.documentation.reference import pages
from tests.support.stored_writes import StoredWrite

OPEN = Attempt(number=1, code_digest="c" * 64, driver=DriverState.RUNNING)
GONE = Attempt(number=1, code_digest="c" * 64, driver=DriverState.GONE)
CLOSED = Attempt(number=1, code_digest="c" * 64, driver=DriverState.GONE, is_closed=True)
SEALED = Attempt(number=1, code_digest="c" * 64, driver=DriverState.GONE, is_closed=True, is_complete=True)
BROKEN = Attempt(
    number=1,
    code_digest="c" * 64,
    driver=DriverState.GONE,
    is_closed=True,
    failure=Failure("NeedsChange", reasons.CODE_FAILED, "step 'x' raised"),
)


def test_every_phase_has_a_meaning_and_stands_in_the_schema_of_the_status() -> None:
    status = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]

    assert list(MEANINGS) == list(get_args(Phase)) == status["properties"]["phase"]["enum"]
    assert all(f"| `{phase}` | {meaning} |" in pages()["reference/phases.md"] for phase, meaning in MEANINGS.items())


@pytest.mark.parametrize(
    ("last", "decided", "phase"),
    [
        (None, Wait("the pause"), "Pending"),
        (OPEN, Wait("the driver"), "Running"),
        (GONE, Wait("the driver"), "Pending"),
        (CLOSED, Wait("the pause"), "Pending"),
        (SEALED, Wait("its turn"), "Sealed"),
        (SEALED, Commit(1), "Committing"),
        (SEALED, Stall(reasons.SCHEMA_CHANGED, "a column is gone"), "Stalled"),
        (BROKEN, Wait("the pause"), "Pending"),
    ],
)
def test_a_round_says_the_phase_by_what_it_saw_and_decided(last: Attempt | None, decided: Action, phase: Phase) -> None:
    assert phase_of(last, is_committed=False, decided=decided) == phase


@pytest.mark.parametrize(("last", "phase"), [(None, "Pending"), (OPEN, "Running"), (CLOSED, "Pending"), (SEALED, "Sealed")])
def test_who_reads_the_store_alone_says_the_same_where_nothing_else_is_known(last: Attempt | None, phase: Phase) -> None:
    assert phase_of(last, is_committed=False) == phase_of(last, is_committed=False, decided=Wait("x")) == phase


def test_who_reads_the_store_alone_says_that_the_next_round_will_stall() -> None:
    assert phase_of(BROKEN, is_committed=False) == "Stalled"


def test_what_is_committed_is_so_whatever_the_last_attempt_was() -> None:
    assert phase_of(BROKEN, is_committed=True) == phase_of(SEALED, is_committed=True, decided=Finish()) == "Committed"


def test_a_suspended_write_says_so_only_while_that_is_why_it_waits() -> None:
    assert phase_of(CLOSED, is_committed=False, is_suspended=True, decided=Wait("suspend to be unset")) == "Suspended"
    assert phase_of(SEALED, is_committed=False, is_suspended=True, decided=Commit(1)) == "Committing"


def test_an_error_that_may_pass_leaves_the_phase_and_another_stalls() -> None:
    assert phase_after_error(may_pass=True, before="Committing") == "Committing"
    assert phase_after_error(may_pass=True, before=None) == "Pending"
    assert phase_after_error(may_pass=False, before="Running") == "Stalled"


def test_a_deleted_write_is_called_as_in_a_cluster(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    write.launch()
    writes.put_deleted(write.store, write.uid)

    assert read_status(write.manifest, write.store).phase == "Deleting"
