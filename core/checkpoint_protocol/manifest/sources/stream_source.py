"""A source that never ends: the part of a manifest that says what its program hands to `job.stream`, and what goes with it.

Each micro-batch of Spark's Structured Streaming is an epoch, and is staged whole by one attempt. So what goes by single rows of
the source, or begins epochs by itself, does not go with a stream; what is not built yet is refused here, too, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from checkpoint_protocol.manifest.sections import ObjectName, Section, is_absent
from checkpoint_protocol.places.uris import local_path

if TYPE_CHECKING:
    from checkpoint_protocol.manifest.spec import Spec

#: Properties of Spark that say where a query keeps its place, or what that looks like: the place is ours.
_PLACE_PROPERTIES: Final = ("spark.sql.streaming.checkpointLocation", "spark.sql.streaming.checkpointFileManagerClass")
#: The modes that a sink may have for each output mode.
_SINK_MODES: Final = {"Append": ("Append", "Upsert"), "Complete": ("OverwriteAll",), "Update": ("Upsert",)}


class CheckpointVolume(Section):
    """Cluster: the volume for Spark's own checkpoint of the stream, which Spark cannot keep in an object store."""

    claim_name: ObjectName = Field(
        description="A PersistentVolumeClaim in the namespace of the write. It is mounted into the pods of the driver and the "
        "executors. Its access mode is ReadWriteMany, or ReadWriteOnce if all of these pods are on one node.",
    )


class ProgramStream(Section):
    """The program hands a streaming DataFrame to job.stream. Each of its micro-batches is an epoch, and one commit."""

    output_mode: Literal["Append", "Complete", "Update"] = Field(
        default="Append",
        description="Spark's output mode. Append: new rows, for sink.mode Append or Upsert. Complete: the whole result, for "
        "sink.mode OverwriteAll. Update: the rows of the result that have changed, for sink.mode Upsert, or with updateAs.",
    )
    update_as: Literal["Append"] | None = Field(
        default=None,
        exclude_if=is_absent,
        description="For outputMode Update: the rows of the result that have changed are appended, with sink.mode Append. The "
        "table then has each version of a row.",
    )

    checkpoint_volume: CheckpointVolume | None = Field(
        default=None,
        exclude_if=is_absent,
        description="Cluster: the volume for Spark's own checkpoint. On one machine that checkpoint is below checkpoint.uri, "
        "which must be on a disk.",
    )

    @property
    def sink_modes(self) -> tuple[str, ...]:
        """What a commit may do to the table."""
        return (self.update_as,) if self.update_as is not None else _SINK_MODES[self.output_mode]


def why_no_stream(spec: Spec) -> Iterator[tuple[str, str]]:
    """Give the fields of a manifest that do not go with its stream, each with the reason and the way out."""
    stream = spec.source.stream
    if stream is None:
        return
    if stream.update_as is not None and stream.output_mode != "Update":
        yield "source.program.stream.updateAs", "it is for outputMode: Update; leave it out"
    if spec.sink.mode not in stream.sink_modes:
        how = f"outputMode: {stream.output_mode}{f', updateAs: {stream.update_as}' if stream.update_as is not None else ''}"
        yield (
            "sink.mode",
            (
                f"{spec.sink.mode} does not go with source.program.stream.{how}, which needs {' or '.join(stream.sink_modes)}; "
                f"change one of them{_APPEND_VERSIONS if stream.sink_modes == ('Upsert',) else ''}"
            ),
        )
    if spec.on_row_error == "Quarantine":
        yield "onRowError", "rows of a stream have no name by which they could be taken again; say Fail, and drop rows in a step"
    yield from ((f"{place}.memo", _NO_NAME) for place, step in spec.placed_steps() if step.memo)
    for field, given in (
        ("stages", bool(spec.stages)),
        ("trigger", spec.trigger is not None),
        ("runNonce", bool(spec.run_nonce)),
    ):
        if given:
            yield field, f"{_BY_ITSELF[field]}; leave it out"
    if spec.sink.audit is not None:
        yield "sink.audit", "epochs of a stream are not audited yet; leave it out, and check rows in a step"
    if local_path(spec.checkpoint.uri) is None and stream.checkpoint_volume is None:
        yield (
            "source.program.stream.checkpointVolume",
            (
                "Spark cannot keep its own checkpoint of a stream in an object store, as checkpoint.uri is; in a cluster name "
                "a PersistentVolumeClaim here (claimName), on one machine say a folder on a disk in checkpoint.uri"
            ),
        )
    yield from ((f"sparkConf.{name}", why) for name, why in _properties(spec.spark_conf))


_APPEND_VERSIONS: Final = ", or say updateAs: Append, so that the table has each version of a row"
_NO_NAME: Final = "results are kept under the name of their row, and rows of a stream have none; leave it out"
_BY_ITSELF: Final = {
    "stages": "the micro-batches of a stream are staged in one go: put the steps into one list",
    "trigger": "a stream begins its epochs itself, by what job.stream is told (processingTime, availableNow)",
    "runNonce": "a stream begins its epochs itself: each run goes on where the last one ended",
}


def _properties(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in _PLACE_PROPERTIES:
        if name in names:
            yield name, "where a stream keeps its place is below checkpoint.uri, or in checkpointVolume; leave it out"
