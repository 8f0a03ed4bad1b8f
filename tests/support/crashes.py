"""Die before or after the n-th external effect: ports wrapped so that effects are enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint_commit.iceberg.audit_stage import PyicebergAuditedTable
from checkpoint_commit.iceberg.table import PyicebergTable
from checkpoint_commit.lance.added.table import PylanceColumns
from checkpoint_commit.lance.table import PylanceTable
from checkpoint_commit.ports import Sink
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import ObjectStore, StoredObject


class Died(BaseException):
    """The actor dies here. A BaseException, so that nothing in the product can catch it by accident."""


def die() -> None:
    raise Died


@dataclass
class Effects:
    """Counts external effects and dies at one of them. Without a point it only records their names."""

    point: int | None = None
    after: bool = False
    kill: Callable[[], None] = die
    names: list[str] = field(default_factory=list)

    def around(self, name: str, effect: Callable[[], Any]) -> Any:
        number = len(self.names)
        self.names.append(name)
        if number == self.point and not self.after:
            self.kill()
        result = effect()
        if number == self.point and self.after:
            self.kill()
        return result


@dataclass
class DyingAtItsCommit(Effects):
    """Dies before or after the request that changes the table."""

    def around(self, name: str, effect: Callable[[], Any]) -> Any:
        if name in ("swap", "append", "update"):
            self.point = len(self.names)
        return super().around(name, effect)


@dataclass
class DyingStore:
    """The store port; each put is an effect, named by its path without the uid."""

    inner: ObjectStore
    effects: Effects

    @property
    def uri(self) -> str:
        return self.inner.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        kind, *rest = path.split("/")
        return bool(self.effects.around("/".join([kind, *rest[1:]]), lambda: self.inner.put_if_absent(path, data)))

    def get(self, path: str, most_bytes: int) -> bytes | None:
        return self.inner.get(path, most_bytes)

    def list(self, folder: str, borders: Sequence[str] = ()) -> Iterator[StoredObject]:
        return self.inner.list(folder, borders)

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(paths)


class DyingIcebergTable(PyicebergTable):
    """The real table; each swap is an effect."""

    effects: Effects

    def swap(self, *args: Any) -> Any:
        return self.effects.around("swap", lambda: super(DyingIcebergTable, self).swap(*args))


class DyingAuditedTable(PyicebergAuditedTable):
    """The real table of a sink with an audit; each request is an effect."""

    effects: Effects

    def stage(self, *args: Any) -> Any:
        return self.effects.around("stage", lambda: super(DyingAuditedTable, self).stage(*args))

    def publish(self, *args: Any) -> Any:
        return self.effects.around("publish", lambda: super(DyingAuditedTable, self).publish(*args))

    def swap(self, *args: Any) -> Any:
        return self.effects.around("swap", lambda: super(DyingAuditedTable, self).swap(*args))


class DyingLanceTable(PylanceTable):
    """The real dataset; each request is an effect."""

    effects: Effects

    def append(self, *args: Any) -> Any:
        return self.effects.around("append", lambda: super(DyingLanceTable, self).append(*args))

    def update(self, *args: Any) -> Any:
        return self.effects.around("update", lambda: super(DyingLanceTable, self).update(*args))

    def swap(self, *args: Any) -> Any:
        return self.effects.around("swap", lambda: super(DyingLanceTable, self).swap(*args))

    def fence(self, *args: Any) -> Any:
        return self.effects.around("fence", lambda: super(DyingLanceTable, self).fence(*args))


class DyingLanceColumns(PylanceColumns):
    """The real dataset whose rows get columns; each request is an effect."""

    effects: Effects

    def add_columns(self, *args: Any) -> Any:
        return self.effects.around("add columns", lambda: super(DyingLanceColumns, self).add_columns(*args))

    def replace(self, *args: Any) -> Any:
        return self.effects.around("replace", lambda: super(DyingLanceColumns, self).replace(*args))

    def clear_staged(self, *args: Any) -> Any:
        return self.effects.around("clear", lambda: super(DyingLanceColumns, self).clear_staged(*args))


def dying_sink(manifest: CheckpointedWrite, settings: Settings, effects: Effects) -> Sink:
    """Return the production sink over a table whose requests are effects."""
    sink: Any = open_sink(manifest.spec.sink, settings)
    table = sink.inner.table if manifest.spec.sink.mode == "Upsert" else sink.table
    kinds = {
        PyicebergTable: DyingIcebergTable,
        PyicebergAuditedTable: DyingAuditedTable,
        PylanceTable: DyingLanceTable,
        PylanceColumns: DyingLanceColumns,
    }
    table.__class__ = kinds[type(table)]
    table.effects = effects
    sink_as_port: Sink = sink
    return sink_as_port
