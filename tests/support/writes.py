"""Manifests and inputs for tests: small Parquet files whose rows carry a unique number, and runs of the loop to the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from checkpoint_commit.catalogs.source_tables import open_source
from checkpoint_commit.ports import Sink
from checkpoint_commit.sinks.registry import open_sink
from checkpoint_control.decision.actions import Wait
from checkpoint_control.loop.looks import listing_of
from checkpoint_control.loop.observing import Observer
from checkpoint_control.loop.reconcile import Reconciler, Round
from checkpoint_control.pipelines.inherited import parent_of
from checkpoint_control.ports import Host, Write
from checkpoint_control.writes.registration import registering
from checkpoint_local.code import digests_with
from checkpoint_local.runner import LocalHost, identify
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, CheckpointedWrite, parse_manifest
from checkpoint_protocol.store.object_store import ObjectStore, open_store
from tests.support.direct_drivers import DirectDrivers
from tests.support.places import Place

#: Drivers import the code as it is, and each stage has code of its own.
_HOST: Final = LocalHost(digest_of=digests_with(None))
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def rows_of(numbers: Sequence[int]) -> pa.Table:
    return pa.table({"id": list(numbers), "text": [f"zeile {number}" for number in numbers]}, schema=SCHEMA)


def write_inputs(folder: Path, files: int = 4, rows: int = 100) -> Path:
    """Write Parquet files with the numbers 0 .. files*rows-1, in several row groups each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        table = rows_of(range(number * rows, (number + 1) * rows))
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=max(1, rows // 3))
    return folder


def manifest_for(
    place: Place,
    path: str | Path | dict[str, Any],
    /,
    *,
    name: str = "write",
    steps: Sequence[dict[str, Any]] = (),
    whole: Sequence[str] = (),
    files: Mapping[str, Any] | None = None,
    **spec: Any,
) -> CheckpointedWrite:
    """Return a manifest for Parquet input, or for a whole source section.

    `files` overrides fields of source.files, and `spec` sections, field by field unless they are named in `whole`.
    """
    sections: dict[str, Any] = {
        "source": path if isinstance(path, dict) else {"files": {"format": "parquet", "paths": [str(path)]}},
        "steps": list(steps),
        "sink": place.sink(),
        "checkpoint": {"uri": place.checkpoint_uri, "interval": "1h"},
    }
    if files is not None:
        sections["source"]["files"] |= files
    for section, value in spec.items():
        is_merged = isinstance(sections.get(section), dict) and section not in whole
        sections[section] = {**sections[section], **value} if is_merged else value
    return parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": sections})


def reconciler_for(
    manifest: CheckpointedWrite,
    place: Place,
    drivers: DirectDrivers | None = None,
    store: ObjectStore | None = None,
    sink: Sink | None = None,
    host: Host = _HOST,
) -> Reconciler:
    """Return the production loop with drivers that run in this process."""
    store = store or open_store(manifest.spec.checkpoint.uri, place.settings)
    uid = identify(store, manifest)
    write = host.renew(Write(uid=uid, spec=manifest.spec, code_digest="", row_keys=manifest.row_keys))
    metadata = manifest.metadata
    return Reconciler(
        Observer(
            write,
            store,
            drivers or DirectDrivers(store, place.settings),
            sink or open_sink(manifest.spec.sink, place.settings),
            host,
            pin_source=open_source(manifest.spec.source, place.settings),
            parent=parent_of(manifest.spec, store, metadata.namespace, place.settings, listing_of(manifest.spec, place.settings)),
        ),
        register=registering(store, uid, metadata.namespace, metadata.name, manifest.spec),
    )


def drive(reconciler: Reconciler, rounds: int = 2_000) -> Round:
    """Run rounds to the end, waiting for drivers where the loop waits."""
    for _ in range(rounds):
        done = reconciler.step()
        if done.outcome is not None:
            return done
        if isinstance(done.actions[-1], Wait) and isinstance(reconciler.observer.drivers, DirectDrivers):
            reconciler.observer.drivers.wait_a_moment()
    raise AssertionError(f"no end after {rounds} rounds; the last did {done.actions}")
