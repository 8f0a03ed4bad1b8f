"""Small stateful tables under the commit protocols, with faults by script. What they do is checked against the real ones.

A request (swap, append, fence, block_commit) takes the next fault of its script:
    stranger       a stranger's append lands just before it
    lost           carried out, and the answer is lost
    dropped        not carried out, and no answer
    late           no answer; carried out when `land_late` is called, if the table then takes it
    misreported    carried out, and reported as refused
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoint_commit.iceberg.commit import IcebergState
from checkpoint_commit.lance.port import LanceState
from checkpoint_commit.outcomes import Landed, Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import IcebergTarget, LanceTarget, StagedFile
from tests.support.records import TOKEN

Fault = Literal["", "stranger", "lost", "dropped", "late", "misreported"]


def _names(files: Iterable[StagedFile]) -> tuple[str, ...]:
    return tuple(path for file in files for path in file.paths)


@dataclass
class ScriptedTable:
    """What both tables share. `log` has one word for each call; `before_request` sees the world just before a request."""

    faults: deque[Fault] = field(default_factory=deque)
    errors: deque[CheckpointError | None] = field(default_factory=deque)
    incompatibility: Rejected | CheckpointError | None = None
    exists: bool = True
    log: list[str] = field(default_factory=list)
    before_request: Callable[[], None] = lambda: None
    _late: list[Callable[[], RequestOutcome]] = field(default_factory=list)

    def append_as_stranger(self) -> None:
        raise NotImplementedError

    def land_late(self) -> RequestOutcome:
        return self._late.pop(0)()

    def _looking(self) -> None:
        self.log.append("load")
        error = self.errors.popleft() if self.errors else None
        if error is not None:
            raise error

    def _request(self, name: str, apply: Callable[[], RequestOutcome]) -> RequestOutcome:
        self.before_request()
        self.log.append(name)
        fault = self.faults.popleft() if self.faults else ""
        match fault:
            case "stranger":
                self.append_as_stranger()
                return apply()
            case "lost":
                apply()
                return Unanswered("the answer was lost")
            case "dropped":
                return Unanswered("the request was lost")
            case "late":
                self._late.append(apply)
                return Unanswered("the request is on its way")
            case "misreported":
                apply()
                return Refused("it says")
        return apply()


@dataclass(frozen=True, slots=True)
class FakeSnapshot:
    id: int
    parent: int | None
    key: str | None
    files: tuple[str, ...]
    is_tombstone: bool = False


@dataclass
class FakeIceberg(ScriptedTable):
    """Implements IcebergTable: the head moves only from where it was looked at."""

    uuid: str = "the-table"
    history: list[FakeSnapshot] = field(default_factory=list)
    properties: dict[str, int] = field(default_factory=dict)
    blocked: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    #: Whether the branch is there. One that is not has main's history, which is this one.
    has_branch: bool = True
    #: What only requests tell.
    conflict: Rejected | CheckpointError | None = None
    #: Looks that were made before, as a committer has them that was slow.
    older: deque[IcebergState] = field(default_factory=deque)

    # --- strangers

    def append_as_stranger(self) -> None:
        self._add(FakeSnapshot(len(self.history) + 1, self._head, None, (f"stranger-{len(self.history)}.parquet",)))

    def expire_all_but_the_head(self) -> None:
        self.expired = max(0, len(self.history) - 1)

    # --- checks

    def commits_of(self, key: EpochKey) -> list[FakeSnapshot]:
        return [snapshot for snapshot in self.history if snapshot.key == str(key) and not snapshot.is_tombstone]

    def tombstones_of(self, key: EpochKey) -> list[FakeSnapshot]:
        return [snapshot for snapshot in self.history if snapshot.key == str(key) and snapshot.is_tombstone]

    # --- the port

    def load(self, key: EpochKey) -> IcebergState | None:
        self._looking()
        if self.older:
            return self.older.popleft()
        if not self.exists:
            return None
        known = self.history[self.expired :]
        ours = [snapshot for snapshot in known if snapshot.key == str(key)]
        is_committed = any(not snapshot.is_tombstone for snapshot in ours)
        is_committed = is_committed or self.properties.get(key.property_name, 0) >= key.epoch
        is_tombstone = not is_committed and (bool(ours) or self.blocked.get(key.property_name, 0) >= key.epoch)
        return IcebergState(
            table_uuid=self.uuid,
            head=self._head,
            committed=key.snapshot_id if is_committed or is_tombstone else None,
            ancestry=tuple(snapshot.id for snapshot in reversed(known)),
            ancestry_is_whole=self.expired == 0,
            is_tombstone=is_tombstone,
            missing_branch=None if self.has_branch else "staging",
        )

    def find_change(self, state: IcebergState, targets: Sequence[IcebergTarget]) -> Rejected | None:
        if isinstance(self.incompatibility, CheckpointError):
            raise self.incompatibility
        return self.incompatibility

    def find_incompatibility(self, state: IcebergState, targets: Sequence[IcebergTarget], change: Any) -> Rejected | None:
        self.log.append("incompatibility")
        if isinstance(self.conflict, CheckpointError):
            raise self.conflict
        return self.conflict

    def references_any(self, state: IcebergState, change: Any) -> bool:
        self.log.append("references")
        present = {name for snapshot in self.history for name in snapshot.files}
        return any(name in present for name in _names(change.files))

    def swap(self, state: IcebergState, key: EpochKey, change: Any) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if self._head != state.head or self.has_branch == (state.missing_branch is not None):
                return Refused("the branch has moved")
            self.has_branch = True
            self._add(FakeSnapshot(key.snapshot_id, state.head, str(key), _names(change.files)))
            self.properties[key.property_name] = max(key.epoch, self.properties.get(key.property_name, 0))
            return Landed(key.snapshot_id)

        return self._request(f"swap on {state.head}", apply)

    def block_commit(self, state: IcebergState, key: EpochKey) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if self._head != state.head or self.has_branch == (state.missing_branch is not None):
                return Refused("the branch has moved")
            self.has_branch = True
            self._add(FakeSnapshot(key.snapshot_id, state.head, str(key), (), is_tombstone=True))
            self.blocked[key.property_name] = key.epoch
            return Landed(key.snapshot_id)

        return self._request(f"block_commit on {state.head}", apply)

    @property
    def _head(self) -> int | None:
        return self.history[-1].id if self.history else None

    def _add(self, snapshot: FakeSnapshot) -> None:
        self.history.append(snapshot)


@dataclass(frozen=True, slots=True)
class FakeVersion:
    kind: Literal["create", "append", "overwrite", "update", "fence", "merge"]
    key: str | None = None
    files: tuple[str, ...] = ()

    @property
    def is_tombstone(self) -> bool:
        return self.kind == "fence" and self.key is not None


@dataclass
class FakeLance(ScriptedTable):
    """Implements LanceTable: an append lands unless a fence came after what it is based on; a fence, unless anything did."""

    identity: str | None = TOKEN
    versions: list[FakeVersion] = field(default_factory=lambda: [FakeVersion("create")])
    cleaned: int = 0
    retyped_from: int | None = None

    # --- strangers

    def retype_column(self) -> None:
        self.versions.append(FakeVersion("merge"))
        self.retyped_from = len(self.versions)

    def append_as_stranger(self) -> None:
        self.versions.append(FakeVersion("append", None, (f"stranger-{len(self.versions)}.lance",)))

    def clean_all_but_the_latest(self) -> None:
        self.cleaned = len(self.versions) - 1

    # --- checks

    def commits_of(self, key: EpochKey) -> list[FakeVersion]:
        return [version for version in self.versions if version.key == str(key) and not version.is_tombstone]

    def tombstones_of(self, key: EpochKey) -> list[FakeVersion]:
        return [version for version in self.versions if version.key == str(key) and version.is_tombstone]

    # --- the port

    def latest_version(self) -> int | None:
        self.log.append("latest")
        return len(self.versions) if self.exists else None

    def load(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceState | None:
        self._looking()
        if not self.exists:
            return None
        at_version = up_to or len(self.versions)
        searched = range(at_version, since, -1)
        readable = [number for number in searched if number > self.cleaned]
        ours = [number for number in readable if self.versions[number - 1].key == str(key)]
        committed = next((number for number in ours if not self.versions[number - 1].is_tombstone), None)
        found = next(iter(ours), None) if committed is None else committed
        return LanceState(
            identity=self.identity,
            at_version=at_version,
            committed=found,
            history_reaches_back=committed is not None or len(readable) == len(searched),
            is_tombstone=committed is None and found is not None,
        )

    def find_incompatibility(self, state: LanceState, targets: Sequence[LanceTarget], change: Any) -> Rejected | None:
        self.log.append("incompatibility")
        if any(target.identity != state.identity for target in targets):
            return Rejected(reasons.TABLE_REPLACED, "made again")
        if isinstance(self.incompatibility, CheckpointError):
            raise self.incompatibility
        return self.incompatibility

    def find_schema_change(self, at_version: int, targets: Sequence[LanceTarget]) -> str | None:
        self.log.append(f"schema of {at_version}")
        return "the column 'x' was retyped" if self.retyped_from is not None and at_version >= self.retyped_from else None

    def references_any(self, state: LanceState, change: Any) -> bool:
        self.log.append("references")
        present = {name for version in self.versions[: state.at_version] for name in version.files}
        return any(name in present for name in _names(change.files))

    def append(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if any(version.kind in ("overwrite", "fence") for version in self.versions[read_version:]):
                return Refused("a fence came after what the append is based on")
            self.versions.append(FakeVersion("append", str(key), _names(change.files)))
            return Landed(len(self.versions))

        return self._request(f"append on {read_version}", apply)

    def update(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if any(version.kind != "append" for version in self.versions[read_version:]):
                return Refused("the fragments were changed after what the update is based on")
            self.versions.append(FakeVersion("update", str(key), _names(change.files)))
            return Landed(len(self.versions))

        return self._request(f"update on {read_version}", apply)

    def swap(self, read_version: int, key: EpochKey, change: Any) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if len(self.versions) > read_version:
                return Refused("that version is there already")
            self.versions.append(FakeVersion("overwrite", str(key), _names(change.files)))
            return Landed(len(self.versions))

        return self._request(f"swap on {read_version}", apply)

    def fence(self, read_version: int) -> RequestOutcome:
        return self._fence("fence", read_version, None)

    def block_commit(self, read_version: int, key: EpochKey) -> RequestOutcome:
        return self._fence("block_commit", read_version, str(key))

    def _fence(self, name: str, read_version: int, key: str | None) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if len(self.versions) > read_version:
                return Refused("something landed after what the fence is based on")
            self.versions.append(FakeVersion("fence", key))
            return Landed(len(self.versions))

        return self._request(f"{name} on {read_version}", apply)


def down(what: str = reasons.CATALOG_UNAVAILABLE) -> Retryable:
    return Retryable(what, "no answer")
