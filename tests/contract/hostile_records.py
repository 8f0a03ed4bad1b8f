"""Records that a hostile driver could put, and who reads them: measured by test_memory_of_records.py."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from checkpoint_control.writes.deletion import delete_write
from checkpoint_protocol.errors import Corrupt
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import ClosedRecord, InputPartRecord, PlanRecord, Record, Seal, WriteRecord, encode
from checkpoint_protocol.store import put_once
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.macs import KEY_BYTES, WriteKeys, sign
from checkpoint_protocol.store.memory import MemoryBudget, memory_to_decode
from checkpoint_protocol.store.object_store import open_store
from tests.support.records import DIGEST, KEY, TOKEN, launch, ledger_over, seal
from tests.unit.decision.test_deletion import FakeSink

#: Of all readers of the process, for records of this size.
BUDGET_BYTES: Final = 40 << 20
RECORD_BYTES: Final = 2 << 20

_KEYS: Final = WriteKeys(current="0" * 8, keys={"0" * 8: "00" * KEY_BYTES})
_SEAL: Final = (
    f'{{"token":"{TOKEN}","kind":"seal","version":1,"attempt":1,"task":0,"link":0,"rows_read":0,"rows_written":0,'
    f'"code_digest":"{DIGEST}","last":true,'
)
_SEAL_OF_FILES: Final = _SEAL + '"covered":{"kind":"positions","ranges":[]},"files":['
_FILE: Final = '"format":"iceberg","path":"","size_bytes":0,"rows":0,"schema_id":0,"spec_id":0,"partition":[]'
_PLAN: Final = f'{{"token":"{TOKEN}","kind":"plan","version":1,"attempt":1,"done_files":0,"done_rows":0,"tasks":['
_INPUT: Final = f'{{"token":"{TOKEN}","kind":"input-part","version":1,"files":['
_SOURCE: Final = '{"path":"","etag":"","size_bytes":0,"unit":"rows","end":null'
_ROW: Final = '{"row":{"kind":"key","source":0,"values":[]},"step":"","error":"","message":"","traceback":""}'

#: What begins a record, what it has again and again, and what ends it. The last ones are no records.
SHAPES: Final[Mapping[str, tuple[type[Record], str, str, str]]] = {
    "ranges": (Seal, _SEAL + '"files":[],"covered":{"kind":"positions","ranges":[', '{"file":0,"start":0}', "]}}"),
    "keys objects": (
        Seal,
        _SEAL + f'"files":[],"covered":{{"kind":"keys","keys":{{"rows":0,"fingerprint":"{TOKEN}"}},"objects":[',
        '{"path":"","rows":0,"size_bytes":0}',
        "]}}",
    ),
    "Iceberg files": (Seal, _SEAL_OF_FILES, f'{{{_FILE},"metrics":[],"split_offsets":[]}}', "]}"),
    "metrics": (
        Seal,
        f'{_SEAL_OF_FILES}{{{_FILE},"split_offsets":[],"metrics":[',
        "[0,null,null,null,null,null,null]",
        "]}]}",
    ),
    "offsets": (Seal, f'{_SEAL_OF_FILES}{{{_FILE},"metrics":[],"split_offsets":[', "999", "]}]}"),
    "Lance files": (Seal, _SEAL_OF_FILES, '{"format":"lance","files":[],"rows":0}', "]}"),
    "rows that failed": (
        Seal,
        f'{_SEAL}"covered":{{"kind":"positions","ranges":[]}},"files":[],"quarantined":{{"rows":[',
        _ROW,
        "]}}",
    ),
    "tasks of nothing": (PlanRecord, _PLAN, "[]", "]}"),
    "tasks": (PlanRecord, _PLAN, '[{"file":0,"start":0}]', "]}"),
    "input files": (InputPartRecord, _INPUT, _SOURCE + "}", "]}"),
    "single rows": (InputPartRecord, f'{_INPUT}{_SOURCE},"only":[', "[0,0]", "]}]}"),
    "deletes": (
        InputPartRecord,
        f'{_INPUT}{_SOURCE},"iceberg":{{"spec_id":0,"partition":[],"deletes":[',
        '{"path":"","format":"puffin"}',
        "]}}]}",
    ),
    "chain lengths": (
        ClosedRecord,
        f'{{"token":"{TOKEN}","kind":"closed","version":1,"attempt":1,"plan_token":"{TOKEN}","complete":false,"chain_lengths":[',
        "0",
        "]}",
    ),
    "an identity": (
        WriteRecord,
        f'{{"token":"{TOKEN}","kind":"write","version":1,"uid":"u","namespace":"","name":"","identity_digest":"{DIGEST}","identity":{{"a":[',
        "{}",
        "]}}",
    ),
    "numbers for files": (Seal, _SEAL_OF_FILES, "0", "]}"),
    "no record, of lists": (Seal, '{"x":[', "[]", "]}"),
    "no record, of objects": (Seal, "[", "{}", "]"),
    "no record, of names": (Seal, "{", '"":0', "}"),
    "a seal that lacks all": (Seal, '{"kind":"seal","version":1,"x":[', "[]", "]}"),
    "a file that lacks all": (Seal, _SEAL_OF_FILES + '{"format":"iceberg","x":[', "[]", "]}]}"),
}


def shaped(name: str, size_bytes: int) -> bytes:
    _, begin, item, end = SHAPES[name]
    return (begin + ",".join([item] * (size_bytes // (len(item) + 1))) + end).encode()


def _store(memory: MemoryBudget | None) -> Any:
    return open_store(tempfile.mkdtemp(), StorageSettings(), memory)


def decoded(name: str) -> str:
    """Read a record where there is room for any, and say how much was expected to be taken."""
    data = shaped(name, RECORD_BYTES)
    expected = memory_to_decode(data) + 2 * len(data)
    store = _store(MemoryBudget(16 << 30))
    store.put_if_absent("a.json", sign("a.json", data, _KEYS))
    del data
    with suppress(Corrupt):
        put_once.read(store, "a.json", SHAPES[name][0])
    return str(expected >> 20)


def a_huge_object() -> str:
    store, at = _store(None), EpochLayout(KEY)
    path = Path(store.uri) / at.seal(1, 0, 0)
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, 2 << 30)
    ledger_over(store).seals.read_seal(1, 0, 0)
    return "it was read"


def read(name: str) -> str:
    """Read a record under the budget, as the operator does."""
    store = _store(MemoryBudget(BUDGET_BYTES))
    store.put_if_absent("a.json", sign("a.json", shaped(name, RECORD_BYTES), _KEYS))
    put_once.read(store, "a.json", SHAPES[name][0])
    return "it was read"


def closed_plan(partitions: int) -> str:
    store = _store(MemoryBudget(BUDGET_BYTES))
    ledger = ledger_over(store)
    plan = _PLAN.replace('"tasks":[', f'"tasks":[],"partitions":{partitions}}}')
    assert len(plan) < 200
    store.put_if_absent(ledger.at.plan(1), plan.encode())
    closed = ledger.chains.close(1)
    return f"{closed.complete} {len(encode(closed))}"


def deletion(count: int) -> str:
    """Delete a write whose seals are large."""
    store = _store(MemoryBudget(2 * BUDGET_BYTES))
    ledger = ledger_over(store)
    ledger.attempts.put_launch(launch())
    data = shaped("Lance files", 1 << 20)
    for task in range(count):
        store.put_if_absent(ledger.at.seal(1, task, 0), data)
    return str(delete_write(store, KEY.uid, FakeSink(), pause=lambda _: None))


def counted(seals: int) -> str:
    """Go through the seals of an attempt, each of which is large."""
    store = _store(MemoryBudget(2 * BUDGET_BYTES))
    ledger = ledger_over(store)
    data = shaped("Lance files", 1 << 20).replace(b'"last":true', b'"last":false')
    for link in range(seals):
        store.put_if_absent(ledger.at.seal(1, 0, link), data.replace(b'"link":0', b'"link":%d' % link))
    ledger.attempts.put_closed(ClosedRecord(token=TOKEN, attempt=1, plan_token=TOKEN, chain_lengths=(seals,), complete=False))
    return str(sum(len(each.files) > 0 for each in ledger_over(store).chains.counted_seals([1])))


def small_seals(seals: int) -> str:
    store = _store(MemoryBudget(BUDGET_BYTES))
    ledger = ledger_over(store)
    for link in range(seals):
        ledger.seals.put_seal(seal(0, link))
    ledger.attempts.put_closed(ClosedRecord(token=TOKEN, attempt=1, plan_token=TOKEN, chain_lengths=(seals,), complete=False))
    return str(sum(1 for _ in ledger_over(store).chains.counted_seals([1])))


CASES: Final[Mapping[str, Callable[[], str]]] = {
    **{f"decode {name}": partial(decoded, name) for name in SHAPES},
    **{f"read {name}": partial(read, name) for name in SHAPES},
    "an object of 2 GiB": a_huge_object,
    "a plan of a million partitions": partial(closed_plan, 1_000_000),
    "a plan of more": partial(closed_plan, 1_000_001),
    "a deletion": partial(deletion, 16),
    "large seals": partial(counted, 16),
    "small seals": partial(small_seals, 200),
}
