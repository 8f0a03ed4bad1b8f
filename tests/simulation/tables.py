"""What both simulated tables share: data files that nobody names yet, requests whose answers get lost, the log of landings.

Faults of a request (a swap, an append, a fence, a tombstone):
    lost           it is carried out, and the answer is lost
    late           no answer; it is carried out at any later time if the table then still takes it, or never
    dropped        no answer, and no effect
    misreported    it is carried out, and reported as refused
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_commit.outcomes import Landed, Refused, RequestOutcome, Unanswered
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import LaunchRecord, Merge, StagedFile, Target
from checkpoint_protocol.records.inputs import SourceFile
from tests.simulation.scheduler import Order, Scheduler

REQUEST_FAULTS: Final = ("late", "lost", "dropped", "misreported")
READ_FAULTS: Final = ("down",)

#: The numbers of strangers' rows.
FIRST_OF_STRANGERS: Final = 1_000_000
#: A row of every table here: the number of the input row, and which of the rows made of it this is (None: the only one).
Row = tuple[int, int | None]


@dataclass(slots=True)
class DataFiles:
    """Data files by path, staged by tasks or written by strangers. Names are given here, so that they are deterministic."""

    rows: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    layouts: dict[str, int] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    #: Of files that say which rows of a data file are deleted: that one, and their positions.
    deletes: dict[str, tuple[str, frozenset[int]]] = field(default_factory=dict)

    def new_name(self, label: str) -> str:
        return f"{label}-{len(self.rows)}.data"

    def put(self, path: str, rows: Iterable[Row], layout: int) -> None:
        self.rows[path] = tuple(rows)
        self.layouts[path] = layout

    def put_deletes(self, path: str, data_file: str, positions: frozenset[int], layout: int) -> None:
        self.put(path, (), layout)
        self.deletes[path] = data_file, positions

    def remove(self, path: str) -> None:
        """Remove a file. Its rows stay known, so that the checks can say what is missing."""
        assert path in self.rows
        self.removed.add(path)

    def has(self, path: str, size_bytes: int) -> bool:
        return path in self.rows and path not in self.removed and self.size_of(path) == size_bytes

    def size_of(self, path: str) -> int:
        return 100 + len(self.rows[path])

    def rows_in(self, paths: Iterable[str]) -> Counter[Row]:
        return Counter(row for path in paths for row in self.rows[path])

    def rows_left(self, paths: Iterable[str], deletes: Iterable[str]) -> Counter[Row]:
        """Return the rows of data files without those that these files delete. One that was removed deletes none any more."""
        gone: dict[str, set[int]] = {}
        for data_file, positions in (self.deletes[path] for path in deletes if path not in self.removed):
            gone.setdefault(data_file, set()).update(positions)
        return Counter(row for path in paths for at, row in enumerate(self.rows[path]) if at not in gone.get(path, ()))


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged files of an upsert, where production has them as an append."""

    files: tuple[StagedFile, ...]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def sizes(self) -> dict[str, int]:
        return {path: size_bytes for file in self.files for path, size_bytes in zip(file.paths, file.sizes_bytes, strict=True)}


@dataclass(frozen=True, slots=True)
class Landing:
    """One commit that landed: its snapshot id or version, the key it carries (None: a stranger's), what it added."""

    commit_id: int
    key: str | None
    files: tuple[str, ...]
    layout: int


@dataclass(slots=True)
class SimulatedTable(ABC):
    """A table, its strangers, and the log by which it is checked. `layout` changes when staged files stop fitting."""

    scheduler: Scheduler
    files: DataFiles
    layout: int = 1
    landings: list[Landing] = field(default_factory=list)
    strangers_rows: Counter[Row] = field(default_factory=Counter)
    evidence_was_removed: bool = False
    #: The keys that writes upsert: strangers put rows with these, too.
    shared_keys: Callable[[], Sequence[int]] = tuple
    _stranger_files: int = 0
    flying: list[tuple[str, Callable[[], RequestOutcome]]] = field(default_factory=list)

    # --- for the checks ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def current_files(self) -> tuple[str, ...]:
        """The data files of the current version."""

    @abstractmethod
    def files_at(self, commit_id: int) -> tuple[str, ...] | None:
        """The data files of a version, also of one that was expired; None if there never was one."""

    def current_deletes(self) -> tuple[str, ...]:
        """The files of the current version that say which rows of its data files are deleted."""
        return ()

    def rows(self) -> Counter[Row]:
        return self.files.rows_left(self.current_files(), self.current_deletes())

    def landings_of(self, key: EpochKey) -> list[Landing]:
        return [landing for landing in self.landings if landing.key == str(key)]

    # --- strangers --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def describe(self) -> Target:
        """What staging must know of the table."""

    @abstractmethod
    def layout_of(self, target: Target) -> int:
        """The layout that a described target stands for."""

    @abstractmethod
    def append_as_stranger(self) -> None: ...

    @abstractmethod
    def add_column(self) -> None:
        """Change the schema so that staged files still fit."""

    @abstractmethod
    def remove_history(self) -> None:
        """Expire old snapshots, or clean old versions up."""

    @abstractmethod
    def compact(self) -> None:
        """Rewrite all data files into one."""

    def delete_as_stranger(self) -> None:
        """Take one of the strangers' rows out, where the table knows deletes of rows."""
        raise NotImplementedError

    def strangers(self) -> tuple[Callable[[], None], ...]:
        deletes = (self.delete_as_stranger,) if self.shared_keys() else ()
        return (self.append_as_stranger, self.add_column, self.compact, *deletes, self.remove_history)

    def _new_stranger_file(self) -> str:
        path = self.files.new_name("stranger")
        number, keys = self._stranger_files, self.shared_keys()
        rows: list[Row] = [(FIRST_OF_STRANGERS + number, None)]
        if keys:  # each row once: one is deleted by its value
            rows += [(key, -1 - number) for key in dict.fromkeys((keys[number % len(keys)], keys[(number + 1) % len(keys)]))]
        self._stranger_files += 1
        self.files.put(path, rows, self.layout)
        self.strangers_rows.update(rows)
        return path

    def _new_strangers_delete(self) -> str | None:
        """Delete a row of a stranger that is in the current version; None if there is none."""
        left, path = self.rows(), self.files.new_name("stranger-delete")
        for data_file in self.current_files():
            for at, row in enumerate(self.files.rows[data_file]):
                if left[row] and self.strangers_rows[row]:
                    self.files.put_deletes(path, data_file, frozenset([at]), self.layout)
                    self.strangers_rows -= Counter([row])
                    return path
        return None

    def forget_strangers(self, files: Iterable[str]) -> None:
        """Rows of strangers in these files are replaced by an overwrite that wants them gone."""
        self.strangers_rows -= Counter(row for row in self.files.rows_in(files).elements() if row[0] >= FIRST_OF_STRANGERS)

    def replace_strangers(self, files: Iterable[str], there: Counter[Row]) -> None:
        """An upsert has landed on these rows: those of strangers that have a key of its files are not to be there any more."""
        keys = {number for number, _ in self.files.rows_in(files)}
        self.strangers_rows -= Counter({row: count for row, count in there.items() if row[0] in keys and (row[1] or 0) < 0})

    def files_to_merge(self, launch: LaunchRecord, merge: Merge) -> tuple[SourceFile, ...]:
        """Return the data files that a merge of an upsert reads."""
        raise NotImplementedError

    # --- requests ---------------------------------------------------------------------------------------------------------

    def _request(self, kind: str, what: str, apply: Callable[[], RequestOutcome]) -> RequestOutcome:
        def effect(order: Order) -> RequestOutcome:
            match order.fault:
                case "late":
                    self.flying.append((f"{kind} {what}", apply))
                    return Unanswered("no answer")
                case "dropped":
                    return Unanswered("no answer")
                case "lost":
                    apply()
                    return Unanswered("no answer")
                case "misreported":
                    apply()
                    return Refused("refused, it says")
                case _:
                    return apply()

        return self.scheduler.at(kind, what, effect, REQUEST_FAULTS)

    def land(self, index: int) -> None:
        """Let a request that was never answered take effect."""
        what, apply = self.flying.pop(index)
        self.scheduler.say(f"(late {what}: {apply()})")

    def drop(self, index: int) -> None:
        what, _ = self.flying.pop(index)
        self.scheduler.say(f"(late {what} is never carried out)")

    def _landed(self, commit_id: int, key: str | None, files: tuple[str, ...]) -> Landed:
        self.landings.append(Landing(commit_id, key, files, self.layout))
        return Landed(commit_id)
