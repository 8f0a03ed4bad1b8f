"""Rows of a source, what is done with them, and where they go: a manifest, built by calls.

    read_parquet("photos/*.parquet").step(embed, concurrency=16).write_lance("vectors.lance", vectors={"vector": 512})

Each call returns a new object and does nothing else; `Write.run` does. A name is that of the manifest's field in snake_case,
unless another is better known, and None means: as the manifest has it by default. `reference/manifest` describes the fields.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal

from checkpointed_writes.write import Write

#: A function, or a class that is made once in each process; or the name of one, as "module:name".
Call = Callable[..., Any] | str
#: Seconds, a timedelta, or a text as "90s" or "5m".
Duration = float | timedelta | str
#: Bytes, or a text as "256Mi".
Size = int | str
Columns = str | Sequence[str]
BatchFormat = Literal["arrow", "pandas"]
Mode = Literal["append", "upsert", "overwrite", "overwrite_partitions"]

_MODES: Final = {
    "append": "Append",
    "upsert": "Upsert",
    "overwrite": "OverwriteAll",
    "overwrite_partitions": "OverwritePartitions",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as they come from a source, and the steps that they go through so far.

    `stages`: those that were begun with `stage` or `aggregate`, the last of which gets the next step. Without any, there is one
    list of steps, and no result is kept before the table.
    """

    source: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...] = ()
    stages: tuple[Mapping[str, Any], ...] = ()

    def select(self, *columns: str) -> Rows:
        """Read only these columns of the source."""
        return self._reading("select", columns=columns)

    def where(self, condition: str) -> Rows:
        """Read only the rows for which this is true, e.g. "day >= '2026-01-01' and not (code in (3, 4) or x is null)"."""
        return self._reading("where", where=condition)

    def step(
        self,
        call: Call,
        *,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        output: Mapping[str, str] | None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retry: int | Mapping[str, Any] | None = None,
        rate_limit: Mapping[str, Any] | None = None,
        memo: bool | None = None,
    ) -> Rows:
        """Call a function with each row, a dict. It returns a dict, several dicts, or None to drop the row; it may be async.

        `concurrency`: how many calls a task makes at the same time. `output`: the columns that it returns, with their types.
        `memo`: keep the result of each call until its row is sealed, for expensive calls. `retry`: how often a call is tried
        that fails for an external reason, or a mapping: attempts, first_delay, most_delay, on. `rate_limit`: calls and per.
        """
        return self._with(
            {
                "call": call,
                "input": "row",
                "name": name,
                "arguments": arguments,
                "output": output,
                "concurrency": concurrency,
                "timeout": timeout,
                "retry": {"attempts": retry} if isinstance(retry, int) else retry,
                "rate_limit": rate_limit,
                "memo": memo,
            }
        )

    def batch_step(
        self,
        call: Call,
        *,
        batch_format: BatchFormat = "arrow",
        batch_size: int | None = None,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        output: Mapping[str, str] | None = None,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        retry: int | Mapping[str, Any] | None = None,
        rate_limit: Mapping[str, Any] | None = None,
    ) -> Rows:
        """Call a function with each batch of rows, a pyarrow.RecordBatch or a pandas.DataFrame. It returns one of these."""
        return self._with(
            {
                "call": call,
                "input": batch_format,
                "batch_size": batch_size,
                "name": name,
                "arguments": arguments,
                "output": output,
                "concurrency": concurrency,
                "timeout": timeout,
                "retry": {"attempts": retry} if isinstance(retry, int) else retry,
                "rate_limit": rate_limit,
            }
        )

    def stage(self, name: str, *, checkpoint: bool | None = None, code: Sequence[str] | None = None) -> Rows:
        """Begin a stage: the steps that follow are its steps, and its result is kept until the commit.

        An edit of these steps computes this stage and those after it again, and no others. Steps before the first stage are a
        stage, too. `checkpoint=False`: the result is not kept. `code`: the modules that the result depends on.
        """
        return self._begin({"name": name, "checkpoint": checkpoint, "code": code, "steps": ()})

    def aggregate(
        self,
        call: Call,
        by: Columns = (),
        *,
        name: str | None = None,
        batch_format: BatchFormat = "arrow",
        buckets: int | None = None,
        code: Sequence[str] | None = None,
        arguments: Mapping[str, Any] | None = None,
        output: Mapping[str, str] | None = None,
    ) -> Rows:
        """Call a function once for each key, with all rows of that key in one batch: a stage of its own.

        Without `by` it is called once, with all rows. `buckets`: into how many the keys are divided.
        """
        stage = {"name": name or _label(call), "kind": "Aggregate", "key_by": listed(by), "buckets": buckets, "code": code}
        return self._begin({**stage, "steps": ()}).batch_step(call, batch_format=batch_format, arguments=arguments, output=output)

    # --- where they go --------------------------------------------------------------------------------------------------------

    def write_lance(
        self,
        uri: str | os.PathLike[str] | None = None,
        *,
        namespace: str | None = None,
        table: str | None = None,
        mode: Mode | Literal["add_columns"] = "append",
        keys: Columns | None = None,
        where: str | None = None,
        columns: Columns | None = None,
        only: Literal["null", "changed", "all"] | None = None,
        when_matched: Literal["update", "delete"] | None = None,
        on_concurrent: Literal["fail", "replace"] | None = None,
        create: bool | None = None,
        vectors: Mapping[str, int | Mapping[str, Any]] | None = None,
        blob_columns: Columns | None = None,
        data_storage_version: str | None = None,
        enable_stable_row_ids: bool | None = None,
        tag: str | None = None,
        target_file_size: Size | None = None,
        verify: Literal["seals", "sampled_footers", "footers"] | None = None,
        name: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        settings: str | os.PathLike[str] | None = None,
    ) -> Write:
        """Write to a Lance dataset, which is made if it does not exist (unless create=False).

        Instead of a URI, `namespace` (of the settings) and `table` name it.
        `vectors`: columns of lists that become vectors, with their dimension, or a mapping of dimension and type. `keys`: of an
        upsert. `where`, with mode "overwrite": replace only the rows for which it is true. `columns`, with mode "add_columns":
        what the steps give, added to the rows of the source, which is this dataset; `only="null"` leaves out those that have it,
        and `only="changed"` those whose input has not changed since, either.
        See `Write` for `name`, `checkpoint` and `settings`.
        """
        adds = mode == "add_columns"
        layout = {
            "vector_columns": {
                column: {"dimension": vector} if isinstance(vector, int) else vector for column, vector in (vectors or {}).items()
            }
            or None,
            "blob_columns": listed(blob_columns),
            "data_storage_version": data_storage_version,
            "enable_stable_row_ids": enable_stable_row_ids,
        }
        given = any(value is not None for value in layout.values())
        sink = {
            "lance": {"uri": uri, "namespace": namespace, "table": table, "layout": layout if given else None, "tag": tag},
            "mode": "AddColumns" if adds else _mode(mode, where),
            "columns": listed(columns),
            "only": only,
            **_of_sink(where, keys, when_matched, None, None, on_concurrent, not adds if create is None else create),
            "target_file_size": target_file_size,
            "verify": verify,
        }
        return self._write(sink, name, checkpoint, settings)

    def write_iceberg(
        self,
        table: str,
        *,
        catalog: str | None = None,
        mode: Mode = "append",
        keys: Columns | None = None,
        where: str | None = None,
        when_matched: Literal["update", "delete", "ignore"] | None = None,
        on_duplicate: Literal["fail", "last"] | None = None,
        order_by: str | None = None,
        on_concurrent: Literal["fail", "replace"] | None = None,
        create: bool | None = None,
        partition_by: Sequence[str | tuple[str, str]] | str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_properties: Mapping[str, str] | None = None,
        audit: Call | None = None,
        target_file_size: Size | None = None,
        verify: Literal["seals", "sampled_footers", "footers"] | None = None,
        name: str | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        settings: str | os.PathLike[str] | None = None,
    ) -> Write:
        """Write to an Iceberg table, which is made if it does not exist (unless create=False).

        `catalog` is one of the settings; without it, the first part of the table's name is: "local.travel.flights".
        `partition_by`: columns, or pairs of a column and a transform: ("at", "day"). `keys`: of an upsert. `where`, with mode
        "overwrite": replace only the rows for which it is true. `audit`: a function that checks the rows before readers see them.
        See `Write` for `name`, `checkpoint` and `settings`.
        """
        if catalog is None:
            catalog, _, table = table.partition(".")
        fields = [partition_by] if isinstance(partition_by, str) else partition_by or ()
        parts = [{"column": one} if isinstance(one, str) else {"column": one[0], "transform": one[1]} for one in fields]
        named = {"catalog": catalog, "table": table, "branch": branch, "tag": tag, "snapshot_properties": snapshot_properties}
        sink = {
            "iceberg": named,
            "mode": _mode(mode, where),
            **_of_sink(where, keys, when_matched, on_duplicate, order_by, on_concurrent, True if create is None else create),
            "partition_by": parts or None,
            "audit": audit,
            "target_file_size": target_file_size,
            "verify": verify,
        }
        return self._write(sink, name, checkpoint, settings)

    def write_nothing(
        self,
        name: str,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        settings: str | os.PathLike[str] | None = None,
    ) -> Write:
        """Call the steps for what they do elsewhere: rows are sealed, and no table is written."""
        return self._write({"none": {}}, name, checkpoint, settings)

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _reading(self, what: str, **fields: Any) -> Rows:
        if self.steps or self.stages:
            raise ValueError(f"{what} says what is read of the source; call it before the first step")
        return replace(self, source={**self.source, **fields})

    def _with(self, step: Mapping[str, Any]) -> Rows:
        if not self.stages:
            return replace(self, steps=(*self.steps, step))
        *before, last = self.stages
        return replace(self, stages=(*before, {**last, "steps": (*last["steps"], step)}))

    def _begin(self, stage: Mapping[str, Any]) -> Rows:
        before = ({"name": _label(self.steps[0]["call"]), "steps": self.steps},) if self.steps else self.stages
        return replace(self, steps=(), stages=(*before, stage))

    def _write(self, sink: Mapping[str, Any], name: str | None, checkpoint: Any, settings: Any) -> Write:
        spec = {"source": self.source, "steps": self.steps or None, "stages": self.stages or None, "sink": sink}
        return Write.built(spec, name, checkpoint, settings)


def listed(columns: Columns | None) -> tuple[str, ...] | None:
    """Return names of columns as a tuple; None where none are given."""
    return None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)


def _mode(mode: str, where: str | None) -> str:
    return "OverwriteWhere" if mode == "overwrite" and where is not None else _MODES.get(mode, mode)


def _of_sink(
    where: str | None,
    keys: Columns | None,
    when_matched: str | None,
    on_duplicate: str | None,
    order_by: str | None,
    on_concurrent: str | None,
    create: bool,
) -> dict[str, Any]:
    return {
        "where": where,
        "upsert_keys": listed(keys),
        "when_matched": when_matched,
        "on_duplicate": on_duplicate,
        "order_by": order_by,
        "on_concurrent": on_concurrent,
        "create": create or None,
    }


def _label(call: Call) -> str:
    """Return what a stage is called that has no name: as its first step, in lower case, without what names of stages lack."""
    from checkpointed_writes.choices import label_of

    return label_of(call.rpartition(":")[2] if isinstance(call, str) else getattr(call, "__name__", "stage"))
