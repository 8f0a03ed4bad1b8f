"""Which stages are kept, go on, and are done anew, by what the store has of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from checkpoint_control.pipelines.decisions import Decision, Hashes, Named, Seen, Wanted, decide_stages, named

STAGES = ("parse", "embed", "summarise")


def hash_of(text: str) -> str:
    return text.encode().hex().ljust(64, "0")[:64]


def wanted(*versions: str, algorithm: int = 1) -> list[Wanted]:
    """Stages by what they are called with and the version of their code, e.g. "x1"."""
    found, read = [], "source"
    for name, version in zip(STAGES, versions, strict=True):
        hash_in = hash_of(f"{version[0]}{abs(hash((read, version[0])))}")
        hash_out = f"{hash_in} {version}"
        found.append(Wanted(name, {algorithm: Hashes(hash_in, hash_out)}, "source", version[0]))
        read = hash_out
    return found


def done(stage: Wanted, number: int = 1, reads: str = "", *, is_done: bool = True) -> Seen:
    hashes = stage.hashes[1]
    folder = str(Named(stage.name, hashes.hash_in[:16], number))
    return Seen(folder, 1, hashes.hash_in, hashes.hash_out if is_done else None, stage.source, stage.arguments, reads)


def decide(now: Sequence[Wanted], *seen: Seen) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.what, one.because) for one in decisions(now, *seen)]


def decisions(now: Sequence[Wanted], *seen: Seen) -> tuple[Decision, ...]:
    by_name = {stage.name: [one for one in seen if one.folder.startswith(f"{stage.name}-")] for stage in now}
    by_name[STAGES[-1]] = [one for one in seen if not one.folder]
    return decide_stages(now, by_name, 1)


def test_nothing_there_is_begun() -> None:
    assert decide(wanted("x1", "x1", "x1")) == [("begin", ()), ("begin", ()), ("begin", ())]


def test_what_is_done_is_kept_and_what_is_not_goes_on_whatever_its_code_is_now() -> None:
    then, now = wanted("x1", "x1", "x1"), wanted("x1", "x2", "x1")

    assert decide(now, done(then[0]), done(then[1], is_done=False)) == [("keep", ()), ("continue", ()), ("begin", ())]


def test_edited_code_of_what_is_done_has_the_next_folder_and_those_after_it_read_that() -> None:
    then, now = wanted("x1", "x1", "x1"), wanted("x2", "x1", "x1")
    kept = [done(then[0]), done(then[1], reads=done(then[0]).folder)]

    found = decisions(now, *kept)

    assert [(one.what, one.because) for one in found] == [("redo", ("code",)), ("redo", ("upstream",)), ("begin", ())]
    assert found[0].folder == str(Named("parse", then[0].hashes[1].hash_in[:16], 2))
    assert found[1].folder != kept[1].folder


def test_of_several_that_are_done_the_one_with_the_code_of_now_is_kept() -> None:
    first, second = wanted("x1", "x1", "x1"), wanted("x2", "x1", "x1")
    seen = [done(first[0]), replace(done(second[0], 2))]

    assert decisions(first, *seen)[0].folder == seen[0].folder
    assert decisions(second, *seen)[0].folder == seen[1].folder


def test_changed_arguments_are_another_folder_whether_it_was_done_or_not() -> None:
    then, now = wanted("x1", "x1", "x1"), wanted("x1", "y1", "x1")

    for is_done in (True, False):
        found = decisions(now, done(then[0]), done(then[1], reads=done(then[0]).folder, is_done=is_done))
        assert (found[1].what, found[1].because) == ("redo", ("arguments",))
        assert found[1].folder.endswith("-1")


def test_another_source_is_told_as_the_input() -> None:
    then, now = wanted("x1", "x1", "x1"), [replace(stage, source="other") for stage in wanted("x1", "x1", "x1")]
    then = [replace(stage, hashes={1: Hashes(hash_of("before"), "before")}) for stage in then]

    assert decide(now, done(then[0]))[0] == ("redo", ("input",))


def test_the_last_stage_goes_on_where_it_reads_the_same_result_only() -> None:
    now = wanted("x1", "x1", "x1")
    kept = [done(now[0]), done(now[1], reads=done(now[0]).folder)]
    last = replace(done(now[2], reads=kept[1].folder, is_done=False), folder="")

    assert decide(now, *kept, last)[2] == ("continue", ())
    assert decide(now, *kept, replace(last, reads="embed-0000000000000000-1"))[2] == ("redo", ("upstream",))


def test_hashes_of_an_older_algorithm_are_known_by_that_algorithm() -> None:
    then = wanted("x1", "x1", "x1")
    now = [replace(stage, hashes={**stage.hashes, 2: Hashes(hash_of(f"2{stage.name}"), "2")}) for stage in then]

    found = decide_stages(now, {"parse": [done(then[0])], "embed": [], "summarise": []}, 2)

    assert (found[0].what, found[0].algorithm) == ("keep", 1)
    assert (found[1].what, found[1].algorithm) == ("begin", 2)


def test_hashes_of_a_later_algorithm_are_nothing_to_go_on_with() -> None:
    now = wanted("x1", "x1", "x1")

    assert decide(now, replace(done(now[0]), algorithm=3, hash_out=None))[0][0] == "redo"


@given(st.lists(st.tuples(*[st.sampled_from(["x1", "x2", "y1"])] * 3), min_size=1, max_size=6))
def test_whatever_is_edited_the_stages_before_the_edit_are_kept_once_they_are_done(edits: list[tuple[str, ...]]) -> None:
    """Do what is decided, again and again: two of the same manifests need nothing more, and nobody adds to what is done."""
    seen: list[Seen] = []
    for versions in [*edits, edits[0]]:
        now = wanted(*versions)
        for stage, decision in zip(now[:-1], decisions(now, *seen)[:-1], strict=True):
            if decision.what == "keep":
                continue
            number = named(decision.folder)
            assert number is not None
            assert all(one.folder != decision.folder for one in seen), "what is done is not done again in its place"
            seen.append(done(stage, number.number))
        assert [one.what for one in decisions(now, *seen)[:-1]] == ["keep", "keep"]
    assert [one.what for one in decisions(wanted(*edits[0]), *seen)[:-1]] == ["keep", "keep"]
