"""The input of an epoch: fixed by its first driver, the same for every attempt after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_protocol import ledger as rules
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.layout import EpochLayout
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.quarantine import FileVersion, earlier_epochs, outstanding
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
    retry = launch.quarantine.retry
    again = outstanding(earlier_epochs(ledger)) if retry != "Never" else {}
    _refuse_lost_rows(again, files, launch.on_replaced)
    taken = (_taken(file, known, again, launch) for file in files)
    record = InputRecord(
        token=new_token(), files=tuple(file for file in taken if file is not None), arrow_schema=encode_schema(schema)
    )
    return ledger.put_input(record)


#: The positions of quarantined rows, from and to, in files as they were then.
_Outstanding = Mapping[FileVersion, tuple[tuple[int, int], ...]]


def _taken(file: SourceFile, known: Mapping[str, SourceFile], again: _Outstanding, launch: LaunchRecord) -> SourceFile | None:
    """Return what of a file the epoch takes: all of a new one, of a known one the rows that are tried again; None: nothing."""
    if rows := again.get((file.path, file.etag)):
        return file.model_copy(update={"only": rows})
    if launch.quarantine.retry == "Only" or not _is_new(file, known, launch.on_replaced):
        return None
    return file


def _refuse_lost_rows(again: _Outstanding, files: Sequence[SourceFile], on_replaced: str) -> None:
    """Rows can be tried again only in the file in which they failed; with onReplaced, the others are passed over."""
    now = {file.path: file.etag for file in files}
    for (path, etag), rows in again.items():
        if on_replaced == "Fail" and now.get(path) != etag:
            found = f"now has etag {now[path]}" if path in now else "is not there any more"
            raise NeedsChange(
                reasons.SOURCE_CHANGED,
                f"{len(rows)} quarantined rows of {path} are to be tried again (quarantine.retry); they failed in it with etag "
                f"{etag}, and it {found}; put the old file back, or set onReplaced: Process or Skip to pass them over",
            )


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


def _is_new(file: SourceFile, known: Mapping[str, SourceFile], on_replaced: str) -> bool:
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
