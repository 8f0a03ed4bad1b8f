"""Names of records: made and taken apart in one place; what is no record's name is nobody's record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout, claim_index_of, epoch_of, key_of_seal, number_of, seal_of, stage_of

AT = EpochLayout(EpochKey("0123abcd", 3))
numbers = st.integers(0, 10**9)


def test_every_record_has_the_name_that_the_documentation_gives_it() -> None:
    """A store outlives the program that wrote it: these names never change."""
    assert layout.name_path("team", "flights") == "names/team/flights.json"
    assert layout.write_path("0123abcd") == "control/0123abcd/write.json"
    assert layout.deleted_path("0123abcd") == "control/0123abcd/deleted.json"
    assert layout.code_path("0123abcd", "ab" * 32) == f"control/0123abcd/code/{'ab' * 32}.zip"
    assert AT.launch(1) == "control/0123abcd/3/launch/1.json"
    assert AT.target(1) == "control/0123abcd/3/target/1.json"
    assert AT.closed(12) == "control/0123abcd/3/closed/12.json"
    assert AT.claim(0) == "control/0123abcd/3/commit/claim-0.json"
    assert AT.commit_record == "control/0123abcd/3/commit/done.json"
    assert AT.input == "staged/0123abcd/3/input.json"
    assert AT.plan(2) == "staged/0123abcd/3/2/plan.json"
    assert AT.output(2) == "staged/0123abcd/3/2/output.json"
    assert AT.failure(2) == "staged/0123abcd/3/2/failure.json"
    assert AT.seal(2, 10, 0) == "staged/0123abcd/3/2/seals/10/0.json"
    assert AT.quarantine(2, "ab" * 16) == f"staged/0123abcd/3/2/quarantine/{'ab' * 16}.json"


def test_what_drivers_may_write_and_what_only_the_operator_may_lie_under_different_prefixes() -> None:
    by_drivers = {AT.input, AT.plan(1), AT.output(1), AT.failure(1), AT.seal(1, 0, 0), AT.quarantine(1, "0" * 32)}
    by_the_operator = {
        layout.write_path("u"),
        layout.code_path("u", "0" * 64),
        AT.launch(1),
        AT.target(1),
        AT.closed(1),
        AT.claim(0),
        AT.commit_record,
    }

    assert all(path.startswith("staged/") for path in by_drivers)
    assert all(path.startswith("control/") for path in by_the_operator)


@given(numbers, numbers, numbers)
def test_numbers_in_names_are_read_back(attempt: int, task: int, link: int) -> None:
    assert number_of(AT.launch(attempt), AT.launches) == attempt
    assert number_of(AT.closed(attempt), AT.closings) == attempt
    assert claim_index_of(AT.claim(attempt), AT.commit) == attempt
    assert seal_of(AT.seal(attempt, task, link), AT.seals(attempt)) == (task, link)


@given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers))
def test_different_seals_have_different_names(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (AT.seal(*one) == AT.seal(*other)) == (one == other)


STRAYS = [
    "01.json",
    "1.json.tmp",
    "1.JSON",
    "1",
    "-1.json",
    "+1.json",
    " 1.json",
    "1.json\n",
    "x.json",
    ".json",
    "1/2.json",
    "1e3.json",
    "٣.json",
    "².json",
    "12345678901.json",
    "",
]


@pytest.mark.parametrize("stray", STRAYS)
def test_a_stray_object_in_a_numbered_folder_is_nobodys_record(stray: str) -> None:
    assert number_of(f"{AT.launches}{stray}", AT.launches) is None


@pytest.mark.parametrize(
    "stray", ["done.json", "claim-.json", "claim-01.json", "claim--1.json", "claim-0.json~", "Claim-0.json", "0.json"]
)
def test_a_stray_object_beside_the_claims_is_nobodys_claim(stray: str) -> None:
    assert claim_index_of(f"{AT.commit}{stray}", AT.commit) is None


@pytest.mark.parametrize(
    "stray", ["0.json", "0/00.json", "00/0.json", "0/0/0.json", "0/0.json.tmp", "0/-1.json", "a/0.json", "0//0.json"]
)
def test_a_stray_object_among_the_seals_is_nobodys_seal(stray: str) -> None:
    assert seal_of(f"{AT.seals(1)}{stray}", AT.seals(1)) is None


def test_an_object_of_another_folder_is_nobodys_record() -> None:
    assert number_of(AT.closed(1), AT.launches) is None
    assert number_of("1.json", AT.launches) is None
    assert claim_index_of("claim-0.json", AT.commit) is None
    assert seal_of("0/0.json", AT.seals(1)) is None
    assert seal_of(AT.seal(11, 0, 0), AT.seals(1)) is None


def test_whose_a_seal_is_is_read_and_of_nothing_else() -> None:
    stage = EpochLayout(AT.key.of_stage("merge-7"))
    others = (
        AT.input,
        AT.plan(2),
        AT.output(2),
        AT.failure(2),
        f"{AT.seal(2, 1, 0)}x",
        f"{AT.seals(2)}01/0.json",
        AT.commit_record,
        AT.seal(2, 10, 0).replace("/3/", "/3/stages/Not-A-Stage/"),
        stage.plan(2),
    )

    assert key_of_seal(AT.seal(2, 10, 0), "0123abcd") == AT.key
    assert key_of_seal(stage.seal(2, 10, 0), "0123abcd") == stage.key
    assert [key_of_seal(path, "0123abcd") for path in others] == [None] * len(others)
    assert key_of_seal(AT.seal(2, 10, 0), "0123abc") is None


def test_a_stage_has_records_of_its_own_below_its_epoch_which_are_signed_like_those_of_the_epoch() -> None:
    stage = EpochLayout(AT.key.of_stage("merge-7"))

    assert stage.launch(1) == "control/0123abcd/3/stages/merge-7/launch/1.json"
    assert stage.seal(2, 10, 0) == "staged/0123abcd/3/stages/merge-7/2/seals/10/0.json"
    assert [stage_of(path, AT.stages) for path in (stage.launch(1), AT.launch(1))] == ["merge-7", None]
    assert epoch_of(stage.launch(1), layout.control_folder("0123abcd")) == 3
    assert [layout.signed_for(path) for path in (stage.launch(1), stage.seal(2, 10, 0))] == ["0123abcd"] * 2
    assert layout.signed_for(stage.progress(1)) is None
    assert layout.launch_of_answer(stage.target(2)) == stage.launch(2)


@pytest.mark.parametrize("name", ["Merge", "-merge", "merge-", "a/b", "a" * 64])
def test_a_stage_whose_name_is_no_value_of_a_label_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a stage"):
        AT.key.of_stage(name)


def test_an_epoch_is_read_from_any_of_its_control_records() -> None:
    folder = layout.control_folder("0123abcd")

    assert {epoch_of(path, folder) for path in (AT.launch(1), AT.closed(1), AT.claim(0), AT.commit_record, AT.target(1))} == {3}


@pytest.mark.parametrize(
    "stray",
    ["write.json", "deleted.json", "3", "03/launch/1.json", "0/launch/1.json", "²/launch/1.json", "3x/a", "-3/a", "/a", "3/"],
)
def test_a_stray_object_beside_the_epochs_is_nobodys_epoch(stray: str) -> None:
    folder = layout.control_folder("0123abcd")

    assert epoch_of(f"{folder}{stray}", folder) is None


@pytest.mark.parametrize("name", ["", "a.json", f"{'A' * 32}.json", f"{'0' * 31}.json", f"{'0' * 32}", f"x/{'0' * 32}.json"])
def test_a_stray_object_among_the_quarantined_rows_is_nobodys_record(name: str) -> None:
    assert layout.is_quarantine(AT.quarantine(1, "0" * 32), AT.quarantines(1))
    assert not layout.is_quarantine(f"{AT.quarantines(1)}{name}", AT.quarantines(1))
    assert not layout.is_quarantine(AT.quarantine(1, "0" * 32), AT.quarantines(2))


def test_a_name_of_a_cluster_is_no_name_of_one_machine_whatever_they_are_called() -> None:
    """Names of one machine have folders below them, and objects may be called as numbers are."""
    local = layout.name_path("nightly", "write", 1)
    in_cluster = layout.name_path(layout.scope_in_cluster("nightly", "write"), "1")
    places = [(local, ("nightly", "write", 1)), (in_cluster, ("cluster=nightly/write", "1", 0))]
    for path, place in places:
        assert layout.name_of(path) == place
    again = layout.name_path(layout.scope_in_cluster("c", "team"), "daily", 3)
    assert layout.name_of(again) == ("cluster=c/team", "daily", 3)


def test_names_of_a_cluster_are_signed_all_meanings_of_one_with_its_own_key() -> None:
    scope = layout.scope_in_cluster("c", "team")
    keys = {layout.signed_for(layout.name_path(scope, "daily", times)) for times in range(3)}
    assert keys == {"names/cluster=c/team/daily"}
    assert layout.signed_for(layout.name_path(scope, "other")) not in keys
    assert layout.signed_for(layout.name_path("team", "daily")) is None
    assert layout.signed_for("control/the-uid/2/deleted.json") == "the-uid"
