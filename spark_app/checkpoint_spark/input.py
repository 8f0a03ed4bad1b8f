"""The input of an epoch: fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from checkpoint_protocol import ledger as rules
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import InputRecord, LaunchRecord, SourceFile
from checkpoint_spark.arrow_schema import encode_schema
from checkpoint_spark.sources.chunks import Reader


def fix_input(ledger: Ledger, launch: LaunchRecord, reader: Reader) -> InputRecord:
    """Return the epoch's input: the record that stands, or what the source holds now and no earlier epoch had."""
    standing = ledger.read_input()
    if standing is not None:
        return standing
    files, schema = reader.describe(launch.source.all_paths)
    known = _files_of_earlier_epochs(ledger)
    record = InputRecord(
        token=new_token(),
        files=tuple(file for file in files if _is_new(file, known, launch.on_replaced)),
        arrow_schema=encode_schema(schema),
    )
    return ledger.put_input(record)


def _files_of_earlier_epochs(ledger: Ledger) -> dict[str, SourceFile]:
    known: dict[str, SourceFile] = {}
    for epoch in range(1, ledger.key.epoch):
        where = EpochLayout(EpochKey(ledger.key.uid, epoch)).input
        record = rules.read(ledger.store, where, InputRecord)
        if record is None:
            raise Corrupt(
                reasons.RECORD_UNREADABLE,
                f"{ledger.store.uri}/{where} is gone, so the files that epoch {epoch} had taken are unknown; without it rows "
                "could be taken twice: start a new write for the new files",
            )
        known.update({file.path: file for file in record.files})
    return known


def _is_new(file: SourceFile, known: dict[str, SourceFile], on_replaced: str) -> bool:
    before = known.get(file.path)
    if before is None:
        return True
    if before.etag == file.etag or on_replaced == "Skip":
        return False
    if on_replaced == "Process":
        return True
    raise NeedsChange(
        reasons.SOURCE_CHANGED,
        f"{file.path} was taken by an earlier epoch with etag {before.etag}, and now has etag {file.etag}; "
        "set onReplaced: Process to take it again as new rows, or onReplaced: Skip to pass it over",
    )
