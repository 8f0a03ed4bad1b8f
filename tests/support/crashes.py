"""Die before or after the n-th external effect: ports wrapped so that effects are enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint_operator.commit.iceberg_table import PyicebergTable
from checkpoint_operator.commit.lance_table import PylanceTable
from checkpoint_operator.ports import Sink
from checkpoint_operator.sink_formats.registry import open_sink
from checkpoint_protocol.manifest import CheckpointedWrite
from checkpoint_protocol.settings import Settings
from checkpoint_protocol.store import ObjectStore, StoredObject


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


class DyingLanceTable(PylanceTable):
    """The real dataset; each append and each fence is an effect."""

    effects: Effects

    def append(self, *args: Any) -> Any:
        return self.effects.around("append", lambda: super(DyingLanceTable, self).append(*args))

    def fence(self, *args: Any) -> Any:
        return self.effects.around("fence", lambda: super(DyingLanceTable, self).fence(*args))


def dying_sink(manifest: CheckpointedWrite, settings: Settings, effects: Effects) -> Sink:
    """Return the production sink over a table whose requests are effects."""
    sink: Any = open_sink(manifest.spec.sink, settings)
    sink.table.__class__ = DyingIcebergTable if isinstance(sink.table, PyicebergTable) else DyingLanceTable
    sink.table.effects = effects
    sink_as_port: Sink = sink
    return sink_as_port
