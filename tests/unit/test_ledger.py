"""The rules of the store: who wins a put, what a chain is, which seals count, over stores that behave as real ones do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_protocol import layout, reasons, writes
from checkpoint_protocol.errors import Corrupt, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.put_once import put_once
from checkpoint_protocol.records import (
    ClaimRecord,
    ClosedRecord,
    FailureRecord,
    IcebergBase,
    MarkRecord,
    NameRecord,
    NoTarget,
    OutputRecord,
    Record,
    Seal,
    TargetRecord,
    WriteRecord,
    encode,
)
from tests.support.records import DIGEST, KEY, TOKEN, input_of, launch, ledger_over, plan, put_chains, rows_file, seal
from tests.support.stores import ListHides, ListInvents, LosesAnswers, MemoryStore, RetriesItsPuts, SaysExists

PATH = "names/a/b.json"
TASKS = [[(0, 0, 10)], [(0, 10, 20)], [(1, 0, 5)]]


def name(uid: str) -> NameRecord:
    return NameRecord(token=new_token(), uid=uid)


def claim(index: int) -> ClaimRecord:
    return ClaimRecord(token=new_token(), index=index, base=IcebergBase(table_uuid="t", snapshot_id=None))


def mark() -> MarkRecord:
    return MarkRecord(
        token=new_token(),
        key=str(KEY),
        target="t",
        table_identity=None,
        commit_id=None,
        rows_read=0,
        rows_written=0,
        files=0,
        attempts=1,
        code_digests=(),
    )


def failure(message: str = "m") -> FailureRecord:
    return FailureRecord(token=new_token(), attempt=1, family="Retryable", reason="r", message=message)


def write_record(uid: str = "u") -> WriteRecord:
    return WriteRecord(token=new_token(), uid=uid, namespace="n", name="n", identity={}, identity_digest=DIGEST)


# --- put_once -------------------------------------------------------------------------------------------------------------


def test_the_first_put_stands_and_is_returned_to_whoever_comes_later() -> None:
    store = MemoryStore()
    first = put_once(store, PATH, name("first"))

    assert put_once(store, PATH, name("second")) == first
    assert put_once(store, PATH, first) == first


def test_a_put_whose_answer_was_lost_is_recognised_by_its_token_when_it_is_sent_again() -> None:
    store = LosesAnswers()
    ours = name("ours")

    with pytest.raises(Retryable):
        put_once(store, PATH, ours)
    assert put_once(store, PATH, ours).token == ours.token


def test_a_put_that_the_client_retried_after_its_own_success_is_ours() -> None:
    ours = name("ours")

    assert put_once(RetriesItsPuts(), PATH, ours) == ours


def test_a_put_that_meets_one_in_flight_is_sent_again_until_one_of_them_stands() -> None:
    pauses: list[float] = []
    store = SaysExists(times=3)
    ours = name("ours")

    assert put_once(store, PATH, ours, pauses.append) == ours
    assert len(pauses) == 3


def test_a_put_that_meets_one_in_flight_returns_the_other_when_that_lands() -> None:
    other = name("other")
    store = SaysExists(times=3, lands=encode(other))

    assert put_once(store, PATH, name("ours"), lambda _: None) == other


def test_a_store_that_says_exists_and_never_shows_it_ends_as_retryable_after_bounded_waiting() -> None:
    pauses: list[float] = []

    with pytest.raises(Retryable, match="says that the object exists, and returns none") as caught:
        put_once(SaysExists(), PATH, name("ours"), pauses.append)

    assert caught.value.reason == reasons.STORE_UNAVAILABLE
    assert PATH in caught.value.message
    assert 2 <= len(pauses) <= 20
    assert sum(pauses) <= 10


def test_a_put_over_an_unreadable_object_is_corrupt_and_leaves_it_as_it_is() -> None:
    store = MemoryStore(objects={PATH: b"garbage"})

    with pytest.raises(Corrupt, match=PATH):
        put_once(store, PATH, name("ours"))
    assert store.objects == {PATH: b"garbage"}


def test_of_many_threads_that_put_one_record_all_get_the_same_back() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(16) as putters:
        standing = set(putters.map(lambda number: put_once(store, PATH, name(str(number))).uid, range(64)))

    assert len(standing) == 1


# --- names, writes, epochs ------------------------------------------------------------------------------------------------


def test_a_name_means_the_uid_that_was_given_first() -> None:
    store = MemoryStore()

    assert writes.look_up_name(store, "team", "flights") is None
    assert writes.name_write(store, "team", "flights", "uid1") == "uid1"
    assert writes.name_write(store, "team", "flights", "uid2") == "uid1"
    assert writes.name_write(store, "other", "flights", "uid3") == "uid3"
    assert writes.look_up_name(store, "team", "flights") == "uid1"


def test_who_a_write_is_stands_from_its_first_record() -> None:
    store = MemoryStore()
    first = write_record()

    assert writes.put_write(store, first) == first
    assert writes.put_write(store, write_record()) == first
    assert writes.read_write(store, "u") == first
    assert writes.read_write(store, "u2") is None


def test_epochs_are_those_with_a_control_record_in_numeric_order() -> None:
    store = MemoryStore()
    writes.put_write(store, write_record(KEY.uid))
    for epoch in (10, 9, 1):
        Ledger(store, EpochKey(KEY.uid, epoch)).put_launch(launch())
    Ledger(store, EpochKey(KEY.uid, 11)).put_input(input_of())  # by a driver: no control record
    Ledger(store, EpochKey(f"{KEY.uid}0", 12)).put_launch(launch())  # another write's

    assert writes.list_epochs(store, KEY.uid) == [1, 9, 10]


@pytest.mark.parametrize("stray", ["²/x.json", "0/launch/1.json", "007/launch/1.json", "-1/x", "x/1.json", "5"])
def test_a_stray_object_beside_the_epochs_is_nobodys_epoch(stray: str) -> None:
    store = MemoryStore(objects={f"control/{KEY.uid}/{stray}": b""})

    assert writes.list_epochs(store, KEY.uid) == []


def test_a_deletion_is_noted_once_and_every_epochs_ledger_sees_it_from_then_on() -> None:
    store = MemoryStore()
    before = ledger_over(store)
    assert not before.is_deleted()
    assert writes.read_deleted(store, KEY.uid) is None

    note = writes.put_deleted(store, KEY.uid)

    assert writes.put_deleted(store, KEY.uid) == note == writes.read_deleted(store, KEY.uid)
    assert before.is_deleted(), "that it was not there is not remembered"
    assert Ledger(store, EpochKey(KEY.uid, 7)).is_deleted()
    assert not Ledger(store, EpochKey(f"{KEY.uid}0", 1)).is_deleted()
    assert writes.list_epochs(store, KEY.uid) == []


def test_an_unreadable_note_of_a_deletion_is_corrupt_and_never_no() -> None:
    store = MemoryStore()
    store.put_if_absent(layout.deleted_path(KEY.uid), b"garbage")

    with pytest.raises(Corrupt, match="deleted"):
        ledger_over(store).is_deleted()


# --- records of an epoch --------------------------------------------------------------------------------------------------


def test_attempts_count_from_their_launch_records_in_numeric_order() -> None:
    store = MemoryStore()
    ledger = ledger_over(store)
    for attempt in (10, 2, 1):
        ledger.put_launch(launch(attempt))
    store.objects[f"{ledger.at.launches}0.json"] = b""
    store.objects[f"{ledger.at.launches}03.json"] = b""
    store.objects[f"{ledger.at.launches}4.json.tmp"] = b""

    assert ledger.list_attempts() == [1, 2, 10]


def test_claims_are_listed_in_numeric_order_without_the_mark() -> None:
    ledger = ledger_over(MemoryStore())
    for index in (10, 0, 2):
        ledger.put_claim(claim(index))
    ledger.put_mark(mark())

    assert ledger.list_claims() == [0, 2, 10]


def test_a_second_driver_of_an_attempt_is_superseded_before_any_task() -> None:
    store = MemoryStore()
    first = plan(*TASKS)
    assert ledger_over(store).put_plan(first) == first

    with pytest.raises(Superseded) as caught:
        ledger_over(store).put_plan(plan(*TASKS))

    assert caught.value.reason == "SecondDriver"
    assert ledger_over(store).read_plan(1) == first


def test_a_driver_whose_put_of_the_plan_had_no_answer_goes_on_with_its_own_plan() -> None:
    ours = plan(*TASKS)
    store = LosesAnswers()

    with pytest.raises(Retryable):
        ledger_over(store).put_plan(ours)
    assert ledger_over(store).put_plan(ours) == ours
    assert ledger_over(RetriesItsPuts()).put_plan(ours) == ours


Reader = Callable[[Ledger], object]
READERS: dict[str, tuple[Callable[[layout.EpochLayout], str], Reader]] = {
    "input": (lambda at: at.input, lambda ledger: ledger.read_input()),
    "launch": (lambda at: at.launch(1), lambda ledger: ledger.read_launch(1)),
    "target": (lambda at: at.target(1), lambda ledger: ledger.read_target(1)),
    "output": (lambda at: at.output(1), lambda ledger: ledger.read_output(1)),
    "plan": (lambda at: at.plan(1), lambda ledger: ledger.read_plan(1)),
    "failure": (lambda at: at.failure(1), lambda ledger: ledger.read_failure(1)),
    "seal": (lambda at: at.seal(1, 0, 0), lambda ledger: ledger.read_seal(1, 0, 0)),
    "closed": (lambda at: at.closed(1), lambda ledger: ledger.read_closed(1)),
    "claim": (lambda at: at.claim(0), lambda ledger: ledger.read_claim(0)),
    "mark": (lambda at: at.mark, lambda ledger: ledger.read_mark()),
}


def test_every_put_returns_the_record_that_stands() -> None:
    store = MemoryStore()
    output, target = OutputRecord(token=new_token(), arrow_schema=""), TargetRecord(token=new_token(), target=NoTarget())

    for ledger in (ledger_over(store), ledger_over(store)):
        assert ledger.put_output(1, output) == output
        assert ledger.put_target(1, target) == target
    other = ledger_over(store)
    assert other.put_output(1, OutputRecord(token=new_token(), arrow_schema="AAAA")) == output
    assert other.put_target(1, TargetRecord(token=new_token(), target=NoTarget())) == target
    assert other.read_output(1) == output
    assert other.read_target(1) == target


@pytest.mark.parametrize("kind", READERS)
def test_a_record_that_is_not_there_is_none(kind: str) -> None:
    assert READERS[kind][1](ledger_over(MemoryStore())) is None


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("data", [b"", b"{}", b'{"kind":"other","version":1}'])
def test_a_record_that_cannot_be_read_is_corrupt_names_the_object_and_is_never_absent(kind: str, data: bytes) -> None:
    path, read = READERS[kind]
    ledger = ledger_over(MemoryStore())
    ledger.store.put_if_absent(path(ledger.at), data)

    with pytest.raises(Corrupt) as caught:
        read(ledger)
    assert f"{ledger.store.uri}/{path(ledger.at)}" in caught.value.message


def test_what_may_still_appear_is_read_anew_each_time() -> None:
    ledger, other = (ledger_over(store) for store in [MemoryStore()] * 2)
    for _, read in READERS.values():
        assert read(ledger) is None
    fixed = input_of(rows_file(1))
    other.put_input(fixed)
    records: list[Record] = [
        fixed,
        other.put_launch(launch()),
        other.put_plan(plan(*TASKS)),
        other.put_failure(failure()),
        other.put_claim(claim(0)),
        other.put_mark(mark()),
    ]
    other.put_seal(seal())

    for record in records:
        assert READERS[str(record.model_dump()["kind"])][1](ledger) == record
    assert ledger.read_seal(1, 0, 0) is not None


def test_the_first_failure_that_a_driver_has_told_stands() -> None:
    ledger = ledger_over(MemoryStore())
    ledger.put_failure(failure("first"))
    ledger.put_failure(failure("second"))

    told = ledger.read_failure(1)
    assert told is not None
    assert told.message == "first"


# --- the seal chain -------------------------------------------------------------------------------------------------------


def test_the_try_that_loses_a_link_is_superseded_and_the_winners_seal_stands() -> None:
    store = MemoryStore()
    winner = seal(0, 0, [(0, 0, 5)])
    ledger_over(store).put_seal(winner)

    with pytest.raises(Superseded) as caught:
        ledger_over(store).put_seal(seal(0, 0, [(0, 0, 5)]))

    assert caught.value.reason == "LinkSealed"
    assert ledger_over(store).read_chain(1, 0) == (winner,)


def test_a_seal_whose_put_had_no_answer_is_put_again_without_harm() -> None:
    ours = seal(last=True)
    store = LosesAnswers()

    with pytest.raises(Retryable):
        ledger_over(store).put_seal(ours)
    ledger_over(store).put_seal(ours)
    ledger_over(RetriesItsPuts()).put_seal(ours)
    assert ledger_over(store).read_chain(1, 0) == (ours,)


def test_of_many_tries_that_seal_one_link_exactly_one_is_not_superseded() -> None:
    store = MemoryStore()

    def attempt(_: int) -> bool:
        try:
            ledger_over(store).put_seal(seal())
        except Superseded:
            return False
        return True

    with ThreadPoolExecutor(16) as tries:
        assert sum(tries.map(attempt, range(64))) == 1


def test_a_chain_is_read_link_by_link_and_trusts_no_listing() -> None:
    store = ListHides()
    ledger = ledger_over(store)
    chain = tuple(seal(2, link, last=link == 2) for link in range(3))
    for link in chain:
        ledger.put_seal(link)
    store.hidden = {ledger.at.seal(1, 2, link) for link in range(3)}

    assert ledger_over(store).read_chain(1, 2) == chain


def test_a_chain_ends_before_its_first_gap_and_at_its_last_seal() -> None:
    ledger = ledger_over(MemoryStore())
    for link in (0, 2):
        ledger.put_seal(seal(0, link))
    for link in range(3):
        ledger.put_seal(seal(1, link, last=link == 1))

    assert len(ledger.read_chain(1, 0)) == 1
    assert len(ledger.read_chain(1, 1)) == 2
    assert ledger.read_chain(1, 2) == ()


def test_an_unreadable_link_is_corrupt_and_not_the_end_of_the_chain() -> None:
    ledger = ledger_over(MemoryStore())
    ledger.put_seal(seal(0, 0))
    ledger.store.put_if_absent(ledger.at.seal(1, 0, 1), b"{")

    with pytest.raises(Corrupt, match=r"seals/0/1\.json"):
        ledger.read_chain(1, 0)


@pytest.mark.parametrize("elsewhere", [seal(1, 0), seal(0, 1), seal(0, 0, attempt=2)], ids=["task", "link", "attempt"])
def test_a_seal_that_says_it_belongs_elsewhere_is_corrupt(elsewhere: Seal) -> None:
    """A copied object would count its rows twice."""
    ledger = ledger_over(MemoryStore())
    ledger.store.put_if_absent(ledger.at.seal(1, 0, 0), encode(elsewhere))

    with pytest.raises(
        Corrupt, match=f"says that it is attempt {elsewhere.attempt}, task {elsewhere.task}, link {elsewhere.link}"
    ):
        ledger.read_seal(1, 0, 0)


def test_listed_links_are_counted_up_to_the_first_gap_only() -> None:
    ledger = ledger_over(MemoryStore())
    for task, link in [(0, 0), (0, 1), (0, 3), (1, 1), (10, 0), (2, 0), (2, 1), (2, 2)]:
        ledger.put_seal(seal(task, link))
    ledger.put_seal(seal(7, 0, attempt=11))
    ledger.store.put_if_absent(f"{ledger.at.seals(1)}0/2.json.tmp", b"")

    assert ledger.list_links(1) == {0: 2, 1: 0, 2: 3, 10: 1}


def test_a_counted_seal_that_is_gone_is_corrupt() -> None:
    store = MemoryStore()
    ledger_over(store).put_seal(seal(0, 0))

    with pytest.raises(Corrupt, match=r"seals/0/1\.json counts, and is gone"):
        ledger_over(store).read_seals(1, {0: 2})


def test_many_seals_are_read_at_once_and_in_their_order() -> None:
    store = MemoryStore()
    for task in range(20):
        for link in range(5):
            ledger_over(store).put_seal(seal(task, link, rows=100 * task + link))

    found = ledger_over(store).read_seals(1, dict.fromkeys(range(20), 5))

    assert {task: [link.rows_read for link in chain] for task, chain in found.items()} == {
        task: [100 * task + link for link in range(5)] for task in range(20)
    }


# --- closing --------------------------------------------------------------------------------------------------------------


def test_an_attempt_whose_chains_all_end_in_last_is_closed_as_complete() -> None:
    store = MemoryStore()
    put_chains(store, (1, True), (3, True))

    closed = ledger_over(store).close(1)

    assert closed.complete
    assert closed.chain_lengths == (1, 3)
    assert closed.plan_token == getattr(ledger_over(store).read_plan(1), "token", None)


@pytest.mark.parametrize("lengths", [[(1, True), (3, False)], [(1, True), (0, False)], [(0, False)]])
def test_an_attempt_with_an_open_chain_is_closed_as_incomplete_with_what_it_has(lengths: list[tuple[int, bool]]) -> None:
    store = MemoryStore()
    put_chains(store, *lengths)

    closed = ledger_over(store).close(1)

    assert not closed.complete
    assert closed.chain_lengths == tuple(length for length, _ in lengths)


def test_an_attempt_without_a_plan_is_closed_with_nothing_whatever_was_sealed() -> None:
    store = MemoryStore()
    ledger_over(store).put_seal(seal(0, 0, last=True))

    closed = ledger_over(store).close(1)

    assert (closed.plan_token, closed.chain_lengths, closed.complete) == (None, (), False)
    assert list(ledger_over(store).counted_seals([1])) == []


def test_a_plan_of_no_tasks_is_complete() -> None:
    store = MemoryStore()
    ledger_over(store).put_plan(plan())

    assert ledger_over(store).close(1).complete


def test_a_seal_of_a_task_that_the_plan_does_not_have_does_not_count() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))
    ledger_over(store).put_seal(seal(1, 0, last=True))

    assert ledger_over(store).close(1).chain_lengths == (1,)


def test_closing_takes_the_gap_free_prefix_of_each_chain() -> None:
    store = MemoryStore()
    put_chains(store, (2, False))
    ledger_over(store).put_seal(seal(0, 3, last=True))  # a hostile driver: link 2 was never put

    closed = ledger_over(store).close(1)

    assert closed.chain_lengths == (2,)
    assert not closed.complete


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=4), st.data())
@settings(deadline=None, max_examples=60)
def test_closing_counts_the_whole_chain_whatever_a_listing_hides(lengths: list[tuple[int, bool]], data: st.DataObject) -> None:
    store = MemoryStore()
    put_chains(store, *lengths)
    hidden = {path for path in store.objects if "/seals/" in path and data.draw(st.booleans())}

    closed = ledger_over(ListHides(store, hidden)).close(1)

    assert closed.chain_lengths == tuple(length for length, _ in lengths)
    assert closed.complete == all(is_whole and length for length, is_whole in lengths)


def test_a_listing_that_shows_a_seal_which_is_not_there_stops_the_close() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    at = ledger_over(store).at

    with pytest.raises(Corrupt, match="is listed, and cannot be found"):
        ledger_over(ListInvents(store, (at.seal(1, 0, 1),))).close(1)
    assert ledger_over(store).read_closed(1) is None


def test_an_unreadable_seal_stops_the_close_and_is_not_the_end_of_a_chain() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    store.objects[ledger_over(store).at.seal(1, 0, 1)] = b"\x00"

    with pytest.raises(Corrupt, match=r"seals/0/1\.json"):
        ledger_over(store).close(1)
    assert ledger_over(store).read_closed(1) is None


def test_closing_again_returns_the_same_and_what_was_sealed_since_does_not_count() -> None:
    store = MemoryStore()
    put_chains(store, (1, False))
    first = ledger_over(store).close(1)
    ledger_over(store).put_seal(seal(0, 1, last=True))

    assert ledger_over(store).close(1) == first
    assert [link.link for link in ledger_over(store).counted_seals([1])] == [0]


def test_the_first_closer_wins_and_the_other_goes_on_with_what_stands() -> None:
    """One has read the chain; one more seal lands; the other reads, and puts first."""
    store = MemoryStore()
    put_chains(store, (1, False))

    def close_before_the_other() -> None:
        ledger_over(store).put_seal(seal(0, 1, last=True))
        ledger_over(store).close(1)

    late = ledger_over(MidClose(store, close_before_the_other))

    closed = late.close(1)

    assert closed == ledger_over(store).read_closed(1)
    assert (closed.chain_lengths, closed.complete) == ((2,), True)
    assert late.read_closed(1) == closed
    assert len(list(late.counted_seals([1]))) == 2


def test_a_close_whose_answer_was_lost_is_found_by_the_next_call() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))
    lossy = LosesAnswers(store)

    with pytest.raises(Retryable):
        ledger_over(lossy).close(1)
    assert ledger_over(lossy).close(1).complete


def test_the_seals_of_several_closed_attempts_are_those_of_each_in_turn() -> None:
    store = MemoryStore()
    put_chains(store, (2, False), (1, True))
    ledger = ledger_over(store)
    ledger.put_plan(plan([(0, 5, 10)], attempt=2))
    ledger.put_seal(seal(0, 0, attempt=2, last=True))
    ledger.close(1)
    ledger.close(2)

    found = [(link.attempt, link.task, link.link) for link in ledger_over(store).counted_seals([1, 2])]

    assert found == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]


def test_an_attempt_that_is_not_closed_has_no_seals_that_count() -> None:
    store = MemoryStore()
    put_chains(store, (1, True))

    with pytest.raises(Corrupt, match=r"closed/1\.json is gone"):
        list(ledger_over(store).counted_seals([1]))


def test_the_closed_list_of_an_attempt_that_says_what_it_cannot_is_corrupt() -> None:
    ledger = ledger_over(MemoryStore())
    lie = ClosedRecord(token=TOKEN, attempt=1, plan_token=TOKEN, chain_lengths=(1,), complete=True)
    data = encode(lie).replace(f'"plan_token":"{TOKEN}"'.encode(), b'"plan_token":null')
    ledger.store.put_if_absent(ledger.at.closed(1), data)

    with pytest.raises(Corrupt, match=r"closed/1\.json"):
        ledger.read_closed(1)


class MidClose(ListHides):
    """Lets something happen after the first put of a closed list was decided on, and before it arrives."""

    def __init__(self, inner: MemoryStore, happens: Callable[[], object]) -> None:
        super().__init__(inner)
        self._happens = happens

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if "/closed/" in path:
            self._happens()
        return super().put_if_absent(path, data)
