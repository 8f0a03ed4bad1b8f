"""Which queries are taken: those whose micro-batches Spark replays with the same rows, at a place that is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.sources.stream_source import ProgramStream

_OURS: Final = "leave it out: the query has the identity of the write, and its place is below checkpoint.uri"
#: What a DataStreamWriter can be told, and job.stream cannot.
_REFUSED_OPTIONS: Final[Mapping[str, str]] = {
    "queryName": _OURS,
    "checkpointLocation": _OURS,
    "path": _OURS,
    "format": "rows go to the sink of the manifest; leave it out",
    "partitionBy": "say sink.partitionBy in the manifest",
    "once": "say availableNow=True",
    "continuous": "continuous processing has no micro-batches; say processingTime, or nothing",
    "realTime": "real-time mode shows rows before their micro-batch has ended, so that none could be committed as a whole; "
    "say processingTime, or nothing",
}
#: Sources that give other rows when a micro-batch is replayed, by the beginning of the name that Spark's plan has for them.
_REFUSED_SOURCES: Final[Mapping[str, str]] = {
    "FileSource": "of a file that is gone it gives no rows, and no error, when a micro-batch is replayed; name the files in "
    "source.files, with trigger",
    "socket": "what came by a socket cannot be read again; put a queue between (source.kafka)",
}


def refuse_options(options: Mapping[str, object]) -> None:
    """Refuse arguments of job.stream that it does not have."""
    for name in options:
        why = _REFUSED_OPTIONS.get(name, "it has dataframe, outputMode, availableNow and processingTime")
        raise NeedsChange(reasons.STREAM_REFUSED, f"job.stream does not take {name}: {why}")


def refuse_query(frame: object, stream: ProgramStream, output_mode: str | None) -> None:
    """Refuse what is no stream, has another output mode than the manifest says, or reads what cannot be replayed."""
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise NeedsChange(
            reasons.STREAM_REFUSED,
            f"job.stream is given a {type(frame).__name__} that is no stream; give it a DataFrame of spark.readStream (and no "
            "writer), or say keyColumns in the place of source.program.stream and call job.write",
        )
    if output_mode is not None and output_mode.lower() != stream.output_mode.lower():
        raise NeedsChange(
            reasons.STREAM_REFUSED,
            f"job.stream is told outputMode={output_mode!r}, and source.program.stream.outputMode is {stream.output_mode}; "
            "correct one of them",
        )
    for name in _sources(frame._jdf.queryExecution().analyzed()):
        for beginning, why in _REFUSED_SOURCES.items():
            if name.startswith(beginning):
                raise NeedsChange(reasons.STREAM_REFUSED, f"the stream reads Spark's source {name}: {why}")


def _sources(node: Any) -> Iterator[str]:
    """Give the names of the sources of a plan."""
    if node.getClass().getSimpleName() in ("StreamingRelation", "StreamingRelationV2"):
        yield node.sourceName()
    children = node.children()
    for number in range(children.size()):
        yield from _sources(children.apply(number))
