"""A Lance dataset whose rows get columns: making them, taking in what is staged, and the one transaction that shows it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from checkpoint_commit.changes import Change, only
from checkpoint_commit.footers import Footers
from checkpoint_commit.lance.added.staged import (
    LanceReplacement,
    LanceStagedColumns,
    ids_of,
    only_columns,
    take_packed,
    take_staged,
)
from checkpoint_commit.lance.changes.change import LanceChange
from checkpoint_commit.lance.columns import schema_of_new
from checkpoint_commit.lance.history import VersionGone
from checkpoint_commit.lance.table import RETRIES, PylanceTable
from checkpoint_commit.outcomes import RequestOutcome
from checkpoint_formats.lance.columns_stager import staged_folder
from checkpoint_formats.rows.plain_types import decode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.sink import Sink
from checkpoint_protocol.records import (
    LanceColumnFile,
    LancePackTarget,
    LanceTarget,
    Operation,
    StagedColumns,
    StagedFile,
    Target,
)
from checkpoint_protocol.records.formats.operations import AddColumns
from checkpoint_protocol.store.object_store import open_store

_TRIES: Final = 5
_FIRST_STORAGE: Final = "0.1"


class PylanceColumns(PylanceTable):
    """One dataset, and the columns that its rows get."""

    # --- before staging -----------------------------------------------------------------------------------------------------

    def describe_with(self, columns: Sequence[str]) -> LanceTarget | None:
        """Return the dataset as staging needs to know it; None if it does not have all of the columns yet.

        NeedsChange if there is no dataset, or if a row cannot be without a value in one of them.
        """
        target = self.describe()
        if target is None:
            raise NeedsChange(
                reasons.TABLE_MISSING,
                f"there is no Lance dataset {self._uri}, to whose rows columns are to be added; correct its uri",
            )
        if target.storage_version == _FIRST_STORAGE:
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"the Lance dataset {self._uri} has the data storage version {_FIRST_STORAGE}, in which columns have no files "
                "of their own; write the dataset again with a later version",
            )
        schema = decode_schema(target.arrow_schema)
        for name in columns:
            number = schema.get_field_index(name)
            if number < 0:
                return None
            if not schema.field(number).nullable:
                raise NeedsChange(
                    reasons.TABLE_UNSUPPORTED,
                    f"the column {name!r} of the Lance dataset {self._uri} is required, and rows without a value are NULL in "
                    "it; make it nullable (alter_columns), or name another one in sink.columns",
                )
        return target

    def add_columns(self, arrow_schema: str, sink: Sink) -> LanceTarget:
        """See to it that the dataset has these columns, NULL in each row; return it. What is there already stays."""
        try:
            wanted = schema_of_new(decode_schema(arrow_schema), sink.lance.layout if sink.lance is not None else None)
        except NeedsChange as error:
            raise NeedsChange(
                error.reason, f"the columns cannot be added to the Lance dataset {self._uri}: {error.message}"
            ) from error
        last: Exception | None = None
        for _ in range(_TRIES):
            dataset = self._open()
            if dataset is None:
                raise NeedsChange(reasons.TABLE_MISSING, f"the Lance dataset {self._uri} does not exist any more")
            missing = [field.with_nullable(True) for field in wanted if field.name not in dataset.schema.names]
            if not missing:
                break
            try:
                dataset.add_columns(pa.schema(missing))
            except Exception as error:
                last = error  # another has added them in the meantime, or committed something: look again
        else:
            text = one_line(last) if last is not None else ""
            raise Retryable(reasons.STORE_UNAVAILABLE, f"columns could not be added to the Lance dataset {self._uri}: {text}")
        target = self.describe_with(wanted.names)
        if target is None:
            raise Retryable(reasons.STORE_UNAVAILABLE, f"a column of {self._uri} was dropped in the moment in which it was added")
        return target

    def target_of_pack(self, target: LanceTarget, operation: AddColumns, at_version: int, attempt: int) -> LancePackTarget:
        """Return the dataset as those need to know it who make data files of what the attempt has staged."""
        return LancePackTarget(
            uri=self._uri,
            identity=target.identity,
            at_version=at_version,
            arrow_schema=only_columns(target, operation.columns).arrow_schema,
            columns=operation.columns,
            replaces=operation.only == "All",
            attempt=attempt,
        )

    # --- the change -----------------------------------------------------------------------------------------------------------

    def pack(
        self,
        operation: Operation,
        key: EpochKey,
        targets: Sequence[Target],
        files: Iterable[StagedFile],
        footers: Footers | None = None,
    ) -> Change:
        assert isinstance(operation, AddColumns)
        return take_staged(self._uri, operation, key, only(StagedColumns, files, self.title))

    def pack_files(self, operation: AddColumns, targets: Sequence[LanceTarget], files: Iterable[StagedFile]) -> LanceReplacement:
        """Take in the data files that were made of what is staged. The footer of each is read, whatever `verify` says."""
        footers = Footers("Footers", self.count_rows, secrets.randbelow)
        written_for = [only_columns(target, operation.columns) for target in targets]
        self._footers.expect(written_for)
        return take_packed(self._uri, operation, written_for, only(LanceColumnFile, files, self.title), footers)

    def _change_of(self, change: Change, targets: Sequence[LanceTarget] | None = None) -> LanceChange:
        assert isinstance(change, LanceStagedColumns | LanceReplacement)
        return change

    def find_moved(self, change: LanceReplacement, at_version: int, targets: Sequence[LanceTarget]) -> int | None:
        """Return a fragment that, in a version, is not as its data file was made for; None if all are."""
        return change.find_moved(self._open(at_version), ids_of(targets[0].fields, change.operation.columns))

    def may_go_on(self, made_for: int, at_version: int) -> bool:
        """Whether all fragments of one version are there in another: else what is being made for the first is in vain."""
        try:
            then, now = self._history.open_version(made_for), self._open(at_version)
        except VersionGone:
            return False
        there = {fragment.fragment_id for fragment in now.get_fragments()} if now is not None else set()
        return all(fragment.fragment_id in there for fragment in then.get_fragments())

    def operations_since(self, version: int, at_version: int) -> list[str]:
        """Name what was done to the dataset after a version, for people: the latest first, as far as it is known."""
        dataset, found = self._open(at_version), []
        for number in range(at_version, version, -1):
            try:
                found.append(f"version {number}: {self._history.summary_of(dataset, number).operation.__name__}")
            except VersionGone:
                found.append(f"version {number}: cleaned up")
        return found

    def replace(self, read_version: int, key: EpochKey, change: Change) -> RequestOutcome:
        """Ask once that the fragments of a version get their files; the key is in the transaction's properties."""
        return self._commit(read_version, key, change, RETRIES)

    # --- what nobody needs any more -------------------------------------------------------------------------------------------

    def clear_staged(self, key: EpochKey) -> None:
        """Remove what the epoch has staged, which no version names."""
        store = open_store(self._uri, self._settings)
        store.delete([found.path for found in store.list(staged_folder(key))])

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        """Remove staged values, whose folder tells whose they are. Not data files, of which Lance takes care."""
        folder = staged_folder(key)
        paths = [file.path for file in files if isinstance(file, StagedColumns) and file.path.startswith(folder)]
        if key.stage or not paths:
            return 0
        open_store(self._uri, self._settings).delete([path for path in paths if "/.." not in path])
        return len(paths)
