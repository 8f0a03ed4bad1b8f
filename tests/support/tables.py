"""Small stateful tables under the commit protocols, with faults by script. What they do is checked against the real ones.

A request (swap, append, fence, bury) takes the next fault of its script:
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

from checkpoint_operator.commit.iceberg import IcebergLook
from checkpoint_operator.commit.lance import LanceLook
from checkpoint_operator.commit.outcomes import Landed, Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_operator.commit.results import paths_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import IcebergTarget, LanceTarget, StagedFile
from tests.support.records import TOKEN

Fault = Literal["", "stranger", "lost", "dropped", "late", "misreported"]


def _names(files: Iterable[StagedFile]) -> tuple[str, ...]:
    return tuple(path for file in files for path in paths_of(file))


@dataclass
class ScriptedTable:
    """What both tables share. `log` has one word for each call; `before_request` sees the world just before a request."""

    faults: deque[Fault] = field(default_factory=deque)
    troubles: deque[CheckpointError | None] = field(default_factory=deque)
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
        self.log.append("look")
        trouble = self.troubles.popleft() if self.troubles else None
        if trouble is not None:
            raise trouble

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
    buried: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    #: Looks that were made before, as a committer has them that was slow.
    older: deque[IcebergLook] = field(default_factory=deque)

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

    def look(self, key: EpochKey) -> IcebergLook | None:
        self._looking()
        if self.older:
            return self.older.popleft()
        if not self.exists:
            return None
        known = self.history[self.expired :]
        ours = [snapshot for snapshot in known if snapshot.key == str(key)]
        is_committed = any(not snapshot.is_tombstone for snapshot in ours)
        is_committed = is_committed or self.properties.get(key.property_name, 0) >= key.epoch
        is_tombstone = not is_committed and (bool(ours) or self.buried.get(key.property_name, 0) >= key.epoch)
        return IcebergLook(
            table_uuid=self.uuid,
            head=self._head,
            committed=key.snapshot_id if is_committed or is_tombstone else None,
            ancestry=tuple(snapshot.id for snapshot in reversed(known)),
            ancestry_is_whole=self.expired == 0,
            is_tombstone=is_tombstone,
        )

    def find_incompatibility(self, look: IcebergLook, targets: Sequence[IcebergTarget], files: Any) -> Rejected | None:
        self.log.append("incompatibility")
        if isinstance(self.incompatibility, CheckpointError):
            raise self.incompatibility
        return self.incompatibility

    def references_any(self, look: IcebergLook, files: Any) -> bool:
        self.log.append("references")
        present = {name for snapshot in self.history for name in snapshot.files}
        return any(name in present for name in _names(files))

    def swap(self, look: IcebergLook, key: EpochKey, files: Any) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if self._head != look.head:
                return Refused("the branch has moved")
            self._add(FakeSnapshot(key.snapshot_id, look.head, str(key), _names(files)))
            self.properties[key.property_name] = max(key.epoch, self.properties.get(key.property_name, 0))
            return Landed(key.snapshot_id)

        return self._request(f"swap on {look.head}", apply)

    def bury(self, look: IcebergLook, key: EpochKey) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if self._head != look.head:
                return Refused("the branch has moved")
            self._add(FakeSnapshot(key.snapshot_id, look.head, str(key), (), is_tombstone=True))
            self.buried[key.property_name] = key.epoch
            return Landed(key.snapshot_id)

        return self._request(f"bury on {look.head}", apply)

    @property
    def _head(self) -> int | None:
        return self.history[-1].id if self.history else None

    def _add(self, snapshot: FakeSnapshot) -> None:
        self.history.append(snapshot)


@dataclass(frozen=True, slots=True)
class FakeVersion:
    kind: Literal["create", "append", "fence", "merge"]
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

    def look(self, key: EpochKey, since: int, up_to: int | None = None) -> LanceLook | None:
        self._looking()
        if not self.exists:
            return None
        at_version = up_to or len(self.versions)
        searched = range(at_version, since, -1)
        readable = [number for number in searched if number > self.cleaned]
        ours = [number for number in readable if self.versions[number - 1].key == str(key)]
        committed = next((number for number in ours if not self.versions[number - 1].is_tombstone), None)
        found = next(iter(ours), None) if committed is None else committed
        return LanceLook(
            identity=self.identity,
            at_version=at_version,
            committed=found,
            history_reaches_back=committed is not None or len(readable) == len(searched),
            is_tombstone=committed is None and found is not None,
        )

    def find_incompatibility(self, look: LanceLook, targets: Sequence[LanceTarget], files: Any) -> Rejected | None:
        self.log.append("incompatibility")
        if any(target.identity != look.identity for target in targets):
            return Rejected(reasons.TABLE_REPLACED, "made again")
        if isinstance(self.incompatibility, CheckpointError):
            raise self.incompatibility
        return self.incompatibility

    def find_schema_change(self, at_version: int, targets: Sequence[LanceTarget]) -> str | None:
        self.log.append(f"schema of {at_version}")
        return "the column 'x' was retyped" if self.retyped_from is not None and at_version >= self.retyped_from else None

    def references_any(self, look: LanceLook, files: Any) -> bool:
        self.log.append("references")
        present = {name for version in self.versions[: look.at_version] for name in version.files}
        return any(name in present for name in _names(files))

    def append(self, read_version: int, key: EpochKey, files: Any) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if any(version.kind == "fence" for version in self.versions[read_version:]):
                return Refused("a fence came after what the append is based on")
            self.versions.append(FakeVersion("append", str(key), _names(files)))
            return Landed(len(self.versions))

        return self._request(f"append on {read_version}", apply)

    def fence(self, read_version: int) -> RequestOutcome:
        return self._fence("fence", read_version, None)

    def bury(self, read_version: int, key: EpochKey) -> RequestOutcome:
        return self._fence("bury", read_version, str(key))

    def _fence(self, name: str, read_version: int, key: str | None) -> RequestOutcome:
        def apply() -> RequestOutcome:
            if len(self.versions) > read_version:
                return Refused("something landed after what the fence is based on")
            self.versions.append(FakeVersion("fence", key))
            return Landed(len(self.versions))

        return self._request(f"{name} on {read_version}", apply)


def down(what: str = reasons.CATALOG_UNAVAILABLE) -> Retryable:
    return Retryable(what, "no answer")
