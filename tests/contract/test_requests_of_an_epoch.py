"""What the driver of an epoch asks a bucket for before its input is fixed: the new files, and not those that were taken."""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Mapping
from functools import partial

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from checkpoint_protocol.store.parts import Input
from checkpoint_work.inputs.epoch_input import fix_input, list_source
from devtools.s3_server import S3Server
from tests.support.records import end_epoch, launch
from tests.support.s3_front import ReadingFront
from tests.support.sources import source_of
from tests.support.stores import MemoryStore

UID = "ab" * 16
TAKEN, NEW = 200, 10
#: Rows of the first files, which tell the types of text.
SAMPLES = 12


def parquet(number: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [number], "name": [f"n{number}"]}), sink)
    return sink.getvalue()


CONTENTS: Mapping[str, Callable[[int], bytes]] = {
    "parquet": parquet,
    "csv": lambda number: f"id,name\n{number},n{number}\n".encode(),
    "json": lambda number: f'{{"id": {number}, "name": "n{number}"}}\n'.encode(),
    "binary": lambda number: f"{number}".encode(),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_the_second_epoch_reads_its_new_files_and_none_that_was_taken(kind: str, s3_server: S3Server) -> None:
    bucket = s3_server.make_bucket(f"epochs-{secrets.token_hex(6)}")

    def put(number: int) -> None:
        obstore.put(s3_server.store(bucket), f"in/{number:04}", CONTENTS[kind](number))

    store = MemoryStore()
    orders = launch().model_copy(update={"source": source_of({"files": {"format": kind, "paths": [f"s3://{bucket}/in/"]}})})

    def plan(epoch: int, front: ReadingFront) -> Input:
        entry = StorageEntry.model_validate(
            {
                "prefix": f"s3://{bucket}",
                "endpoint": front.url,
                "region": s3_server.region,
                "access_key_id": s3_server.access_key,
                "secret_access_key": s3_server.secret_key,
            }
        )
        ledger = Ledger(store, EpochKey(UID, epoch))
        index_of(ledger).ensure(epoch - 1)
        fixed = fix_input(ledger, orders, partial(list_source, orders, StorageSettings(storage=(entry,)), store.uri))
        end_epoch(ledger, orders)
        return fixed

    for number in range(TAKEN):
        put(number)
    with ReadingFront(s3_server.endpoint).serving() as front:
        first = plan(1, front)
        in_first = front.read.total()
        front.forget()
        for number in range(TAKEN, TAKEN + NEW):
            put(number)
        second = plan(2, front)

    assert (len(first.files), len(second.files)) == (TAKEN, NEW)
    assert first.arrow_schema == second.arrow_schema
    assert front.read.total() <= NEW + SAMPLES, front.read
    assert in_first >= TAKEN or kind == "binary"
