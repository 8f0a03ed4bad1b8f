"""A simulated Lance dataset with Lance's own conflict rules, as measured on pylance 14.0.2.

an append lands after      appends, updates, deletes, merges (a column added or retyped), config changes, compactions
and is refused after       a Project made without preserves_nullability: the fence
a Project is refused after appends, updates, merges, Projects; it lands after deletes, config changes and compactions
an update lands after      appends, and what others do to fragments that it takes no rows out of
and is refused after       merges, Projects, and whatever changed one of its fragments
both land on the latest version, whatever they are based on; based on a version that was cleaned up: an error
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoint_commit.lance.changes.upsert import LanceUpsert
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_formats.lance.datasets import identity_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import (
    LanceDeletes,
    LanceField,
    LanceFragment,
    LanceTarget,
    LaunchRecord,
    Merge,
    StagedFile,
    Target,
    Upsert,
)
from checkpoint_protocol.records.inputs import SourceFile
from tests.simulation.scheduler import Order
from tests.simulation.tables import FIRST_OF_STRANGERS, READ_FAULTS, DataFiles, Row, SimulatedTable, StagedRows

_IDENTITY = "1" * 32
_Kind = Literal["create", "append", "overwrite", "project", "merge", "rewrite", "update", "delete"]


@dataclass(slots=True)
class _Version:
    kind: _Kind
    key: str | None
    files: tuple[str, ...]
    layout: int
    is_cleaned: bool = False
    deletes: tuple[str, ...] = ()

    @property
    def is_tombstone(self) -> bool:
        return self.kind == "project" and self.key is not None


@dataclass(slots=True)
class SimulatedLance(SimulatedTable):
    """The dataset. Implements LanceTable: Lance keeps no state between calls."""

    versions: list[_Version] = field(default_factory=lambda: [_Version("create", None, (), 1)])

    @property
    def latest(self) -> int:
        """Versions count from 1."""
        return len(self.versions)

    def current_files(self) -> tuple[str, ...]:
        return self.versions[-1].files

    def current_deletes(self) -> tuple[str, ...]:
        return self.versions[-1].deletes

    def files_to_merge(self, launch: LaunchRecord, merge: Merge) -> tuple[SourceFile, ...]:
        assert launch.source.lance is not None
        at_version = launch.source.lance.version
        assert at_version is not None

        def effect(_: Order) -> tuple[SourceFile, ...]:
            if self.versions[at_version - 1].is_cleaned:
                raise NeedsChange(reasons.SOURCE_MISSING, f"version {at_version} was cleaned up")
            before = merge.since if merge.since is not None and not self.versions[merge.since - 1].is_cleaned else None
            known = {identity_of(fragment) for fragment in self._dataset(before).get_fragments()} if before is not None else ()
            return tuple(
                SourceFile(path=fragment.path, etag=identity_of(fragment), size_bytes=16 << 10, unit="rows", end=fragment.rows)
                for fragment in self._dataset(at_version).get_fragments()
                if identity_of(fragment) not in known
            )

        return self.scheduler.at("find-files", f"of version {at_version}", effect)

    def has_version(self, version: int) -> bool:
        def effect(order: Order) -> bool:
            _check_up(order)
            return not self.versions[version - 1].is_cleaned

        return self.scheduler.at("pin", str(version), effect, READ_FAULTS)

    def files_at(self, commit_id: int) -> tuple[str, ...] | None:
        return self.versions[commit_id - 1].files if 1 <= commit_id <= self.latest else None

    def describe(self) -> LanceTarget:
        return LanceTarget(
            uri="s3://sim/table.lance",
            identity=_IDENTITY,
            at_version=self.latest,
            fields=(LanceField(id=self.layout, path="id", type="int64", nullable=True),),
            arrow_schema="",
            storage_version="2.1",
        )

    def layout_of(self, target: Target) -> int:
        assert isinstance(target, LanceTarget)
        return target.fields[0].id

    # --- strangers --------------------------------------------------------------------------------------------------------

    def append_as_stranger(self) -> None:
        self._add("append", None, (*self.current_files(), self._new_stranger_file()))
        self.scheduler.say("(a stranger appends)")

    def add_column(self) -> None:
        self._add("merge", None, self.current_files())
        self.scheduler.say("(a stranger adds a column)")

    def delete_as_stranger(self) -> None:
        if (path := self._new_strangers_delete()) is not None:
            self._add("delete", None, self.current_files(), (*self.current_deletes(), path))
            self.scheduler.say("(a stranger deletes a row)")

    def compact(self) -> None:
        path = self.files.new_name("compacted")
        self.files.put(path, self.rows().elements(), self.layout)
        self._add("rewrite", None, (path,), ())
        self.scheduler.say("(a stranger compacts)")

    def remove_history(self) -> None:
        if any(not version.is_cleaned for version in self.versions[:-1]):
            self.evidence_was_removed = True
            for version in self.versions[:-1]:
                version.is_cleaned = True
            self.scheduler.say("(a stranger cleans old versions up)")

    def retype_column(self) -> None:
        """Change the schema so that what was staged before no longer fits. Appends land after it all the same."""
        self.layout += 1
        self._add("merge", None, self.current_files())
        self.scheduler.say("(a stranger retypes a column)")

    # --- the port ---------------------------------------------------------------------------------------------------------

    def latest_version(self) -> int | None:
        def effect(order: Order) -> int:
            _check_up(order)
            return self.latest

        return self.scheduler.at("latest", "", effect, READ_FAULTS)

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        def effect(order: Order) -> LanceState:
            _check_up(order)
            at_version = up_to or self.latest
            self._check_openable(at_version)
            committed: int | None = None
            tombstone: int | None = None
            is_whole = True
            for number in range(at_version, since, -1):
                version = self.versions[number - 1]
                if version.is_cleaned:
                    is_whole = False
                elif version.key == str(key) and version.is_tombstone:
                    tombstone = number
                elif version.key == str(key):
                    committed = number
                    break
            is_tombstone = committed is None and tombstone is not None
            return LanceState(_IDENTITY, at_version, tombstone if is_tombstone else committed, is_whole, is_tombstone)

        return self.scheduler.at("look", f"{key} {since}..{up_to or 'latest'}", effect, READ_FAULTS)

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Any) -> Rejected | None:
        def effect(order: Order) -> Rejected | None:
            _check_up(order)
            self._check_openable(state.at_version)
            layout = self.versions[state.at_version - 1].layout
            if any(target.fields[0].id != layout for target in targets):
                return Rejected(reasons.SCHEMA_CHANGED, "a column was retyped")
            held = self.versions[state.at_version - 1].files
            if twice := [path for path in _paths(change) if path in held]:
                return Rejected(reasons.STAGED_RESULT_REFUSED, f"{twice[0]} is in the dataset already")
            staged = ((file.path, file.size_bytes) for fragment in _staged(change) for file in fragment.files)
            for path, size in (*staged, *((deletes.path, deletes.size_bytes) for deletes in _deletes(change))):
                if not self.files.has(path, size):
                    return Rejected(reasons.STAGED_FILE_MISSING, path)
            if isinstance(change, LanceUpsert):
                history: Any = None
                return change.find_conflict(self._dataset(state.at_version), history)
            return None

        return self.scheduler.at("incompatibility", "", effect, READ_FAULTS)

    def find_schema_change(self, at_version: int, targets: Sequence[LanceTarget]) -> str | None:
        def effect(order: Order) -> str | None:
            _check_up(order)
            self._check_openable(at_version)
            layout = self.versions[at_version - 1].layout
            return "a column was retyped" if any(target.fields[0].id != layout for target in targets) else None

        return self.scheduler.at("landed", f"{at_version}", effect, READ_FAULTS)

    def references_any(self, state: LanceState, change: Any) -> bool:
        self._check_openable(state.at_version)
        return any(path in self.versions[state.at_version - 1].files for path in _paths(change))

    def append(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        paths = _paths(change)

        def apply() -> RequestOutcome:
            if self.versions[read_version - 1].is_cleaned:
                return Unanswered(f"version {read_version} was not found")
            if any(version.kind in ("overwrite", "project") for version in self.versions[read_version:]):
                return Refused("preempted by a Project")
            self._add("append", str(key), (*self.current_files(), *paths))
            return self._landed(self.latest, str(key), paths)

        return self._request("append", f"{key} based on {read_version}", apply)

    def update(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        """As Lance's Update, of an upsert or of an OverwriteWhere."""
        if self.versions[read_version - 1].is_cleaned:
            return Refused(f"version {read_version} is gone")
        paths, touched, deletes = _paths(change), set[str](), list[str]()
        base = self._dataset(read_version)
        there = self.files.rows_left(self.versions[read_version - 1].files, self.versions[read_version - 1].deletes)
        if isinstance(change, LanceUpsert):
            for fragment, found in change._merged_of(base):
                if found:
                    touched.add(fragment.path)
                    deletes += [each.path for each in found]
        else:
            touched, deletes = self._rows_of_ours(base, there)

        def apply() -> RequestOutcome:
            if self.versions[read_version - 1].is_cleaned:
                return Unanswered(f"version {read_version} was not found")
            if any(version.kind in ("overwrite", "project", "merge") for version in self.versions[read_version:]):
                return Refused("preempted by a Project")
            now = {fragment.path: identity_of(fragment) for fragment in self._dataset(self.latest).get_fragments()}
            then = {fragment.path: identity_of(fragment) for fragment in base.get_fragments()}
            if any(now.get(path) != then[path] for path in touched):
                return Refused("preempted by what has changed the same fragments")
            if isinstance(change, LanceUpsert):
                self.replace_strangers(paths, there)
            else:
                self.strangers_rows -= Counter({row: count for row, count in there.items() if is_overwritten(row)})
            self._add("update", str(key), (*self.current_files(), *paths), (*self.current_deletes(), *deletes))
            return self._landed(self.latest, str(key), paths)

        return self._request("update", f"{key} based on {read_version}", apply)

    def _rows_of_ours(self, base: _Dataset, there: Counter[Row]) -> tuple[set[str], list[str]]:
        """Put files that delete the rows which an OverwriteWhere takes out of a version; return of which fragments, and those."""
        touched, deletes = set[str](), list[str]()
        for fragment in base.get_fragments():
            at = [at for at, row in enumerate(self.files.rows[fragment.path]) if is_overwritten(row) and there[row]]
            if at:
                path = self.files.new_name("overwritten")
                self.files.put_deletes(path, fragment.path, frozenset(at), self.layout)
                touched.add(fragment.path)
                deletes.append(path)
        return touched, deletes

    def swap(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        paths = _paths(change)

        def apply() -> RequestOutcome:
            if self.versions[read_version - 1].is_cleaned:
                return Unanswered(f"version {read_version} was not found")
            if self.latest > read_version:
                return Refused(f"there is a version {read_version + 1}")
            self.forget_strangers(self.current_files())
            self._add("overwrite", str(key), paths)
            return self._landed(self.latest, str(key), paths)

        return self._request("swap", f"{key} based on {read_version}", apply)

    def fence(self, read_version: int) -> RequestOutcome:
        return self._fence("fence", read_version, None)

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        return self._fence("block_commit", read_version, str(key))

    def discard(self, key: EpochKey, targets: Sequence[Target], files: Sequence[StagedFile]) -> int:
        return 0

    def _fence(self, name: str, read_version: int, key: str | None) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if self.versions[read_version - 1].is_cleaned:
                return Unanswered(f"version {read_version} was not found")
            if any(
                version.kind in ("append", "update", "overwrite", "project", "merge") for version in self.versions[read_version:]
            ):
                return Refused("preempted")
            self._add("project", key, self.current_files())
            return self._landed(self.latest, None, ())

        return self._request(name, f"{key or ''} based on {read_version}".lstrip(), apply)

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _add(self, kind: _Kind, key: str | None, files: tuple[str, ...], deletes: tuple[str, ...] | None = None) -> None:
        """`deletes`: None: as they were."""
        deletes = self.current_deletes() if deletes is None else deletes
        self.versions.append(_Version(kind, key, files, self.layout, deletes=deletes))

    def _dataset(self, version: int) -> _Dataset:
        return _Dataset(version, self.versions[version - 1], self.files)

    def _check_openable(self, version: int) -> None:
        if self.versions[version - 1].is_cleaned:
            raise Retryable(reasons.STORE_UNAVAILABLE, f"version {version} was not found")


def _check_up(order: Order) -> None:
    if order.fault == "down":
        raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")


def _staged(change: Any) -> tuple[LanceFragment, ...]:
    staged: Any = change.staged if isinstance(change, LanceUpsert) else change
    files: tuple[LanceFragment, ...] = staged.files
    return files


def _deletes(change: Any) -> Iterator[LanceDeletes]:
    if isinstance(change, LanceUpsert) and change.merged is not None:
        for found in change.merged.fragments.values():
            yield from found


def _paths(change: Any) -> tuple[str, ...]:
    return tuple(file.path for fragment in _staged(change) for file in fragment.files)


def is_overwritten(row: Row) -> bool:
    """Whether an OverwriteWhere takes it out: rows of writes, and those of strangers that have their keys."""
    return row[0] < FIRST_OF_STRANGERS


def lance_upsert_of(operation: Upsert, files: tuple[StagedFile, ...]) -> LanceUpsert:
    staged: Any = StagedRows(files)
    storage: Any = None
    return LanceUpsert(operation, staged, storage)


@dataclass(frozen=True, slots=True)
class _Fragment:
    """A fragment of a version, as pylance has it."""

    path: str
    rows: int
    deletes: tuple[str, ...]

    @property
    def metadata(self) -> _Fragment:
        return self

    def to_json(self) -> dict[str, Any]:
        deletes = {"read_version": "+".join(self.deletes), "id": len(self.deletes)} if self.deletes else None
        return {"files": [{"path": self.path}], "deletion_file": deletes}


@dataclass(frozen=True, slots=True)
class _Dataset:
    version: int
    seen: _Version
    files: DataFiles

    def get_fragments(self) -> list[_Fragment]:
        deletes: dict[str, list[str]] = {}
        for path in self.seen.deletes:
            deletes.setdefault(self.files.deletes[path][0], []).append(path)
        return [_Fragment(path, len(self.files.rows[path]), tuple(deletes.get(path, ()))) for path in self.seen.files]
