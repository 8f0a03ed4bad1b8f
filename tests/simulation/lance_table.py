"""A simulated Lance dataset with Lance's own conflict rules, as measured on pylance 14.0.2.

an append lands after      appends, merges (a column added or retyped), config changes, compactions
and is refused after       a Project made without preserves_nullability: the fence
a Project is refused after appends, merges, Projects; it lands after config changes and compactions
both land on the latest version, whatever they are based on; based on a version that was cleaned up: an error
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from checkpoint_operator.commit.lance import LanceState
from checkpoint_operator.commit.outcomes import Refused, Rejected, RequestOutcome, Unanswered
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import LanceField, LanceTarget, StagedFile, Target
from tests.simulation.scheduler import Order
from tests.simulation.tables import READ_FAULTS, SimulatedTable

_IDENTITY = "1" * 32
_Kind = Literal["create", "append", "project", "merge", "rewrite"]


@dataclass(slots=True)
class _Version:
    kind: _Kind
    key: str | None
    files: tuple[str, ...]
    layout: int
    is_cleaned: bool = False

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

    def compact(self) -> None:
        path = self.files.new_name("compacted")
        self.files.put(path, self.rows().elements(), self.layout)
        self._add("rewrite", None, (path,))
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
            for path, size in ((file.path, file.size_bytes) for fragment in change.files for file in fragment.files):
                if not self.files.has(path, size):
                    return Rejected(reasons.STAGED_FILE_MISSING, path)
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
            if any(version.kind == "project" for version in self.versions[read_version:]):
                return Refused("preempted by a Project")
            self._add("append", str(key), (*self.current_files(), *paths))
            return self._landed(self.latest, str(key), paths)

        return self._request("append", f"{key} based on {read_version}", apply)

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
            if any(version.kind in ("append", "project", "merge") for version in self.versions[read_version:]):
                return Refused("preempted")
            self._add("project", key, self.current_files())
            return self._landed(self.latest, None, ())

        return self._request(name, f"{key or ''} based on {read_version}".lstrip(), apply)

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _add(self, kind: _Kind, key: str | None, files: tuple[str, ...]) -> None:
        self.versions.append(_Version(kind, key, files, self.layout))

    def _check_openable(self, version: int) -> None:
        if self.versions[version - 1].is_cleaned:
            raise Retryable(reasons.STORE_UNAVAILABLE, f"version {version} was not found")


def _check_up(order: Order) -> None:
    if order.fault == "down":
        raise Retryable(reasons.STORE_UNAVAILABLE, "no answer")


def _paths(change: Any) -> tuple[str, ...]:
    return tuple(file.path for fragment in change.files for file in fragment.files)
