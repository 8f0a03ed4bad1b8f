"""What is wrong before an attempt does any work, as the manifest and the catalogs tell. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from checkpoint_commit.ports import PinSource, Staging
from checkpoint_commit.results import target_of
from checkpoint_control.decision.actions import RecordAttempt
from checkpoint_control.decision.observation import Failure, Tables
from checkpoint_formats.rows.type_names import parse_type
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of
from checkpoint_protocol.manifest.sources.source import Source, Text
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.outputs import find_path_into, is_one_place, outputs_of, refuse
from checkpoint_protocol.records import PinnedIceberg, Target, operation_of, takes_the_whole_source


def refuse_unknown_types(spec: Spec) -> None:
    """NeedsChange(ManifestInvalid) with the field of the first type that is not known."""
    for place, step in spec.placed_steps():
        for name, text in (step.output or {}).items():
            parse_type(name, text, f"spec.{place}.output", nested=True)
    for place, types in _of_sources(spec):
        for name, text in types.items():
            parse_type(name, text, f"spec.source.{place}.types")


def _of_sources(spec: Spec) -> Iterator[tuple[str, Mapping[str, str]]]:
    for number, member in enumerate(spec.source.members):
        if isinstance(member, Text):
            yield member.kind if spec.source.union is None else f"union.{number}.{member.kind}", member.types


def observe_tables(
    ledger: Ledger, spec: Spec, sink: Staging, pin_source: PinSource, wanted: RecordAttempt, *, reads_sink: bool = False
) -> Tables:
    """Return what the rules go by before they let this attempt be recorded. Raises Retryable where a catalog does not answer.

    `reads_sink`: its source is the sink's table, and that is right.
    """
    tables = Tables(title=sink.title, creates_target=spec.sink.create or spec.sink.mode == "AddColumns")
    if ledger.commits.is_deleted():
        return replace(tables, is_deleted=True)
    try:
        refuse_unknown_types(spec)
        target = sink.describe(ledger.key)
        # What the input is has been fixed by an attempt before: the table may have moved since, or be gone.
        source_tables: tuple[PinnedIceberg | None, ...] = ()
        if ledger.inputs.read_input(wanted.input_since) is None:
            refuse_own_outputs(sink, spec, target, ledger.store.uri)
            source_tables = pin_source()
    except NeedsChange as error:
        return replace(tables, problem=Failure("NeedsChange", error.reason, error.message))
    return replace(
        tables,
        target=target,
        source_tables=source_tables,
        is_own_source=not (reads_sink or spec.sink.mode == "AddColumns") and _is_source(target, spec.source, source_tables),
        staged_for_another=_staged_for_another(ledger, wanted.counted, target),
        lost_rows=_lost_rows(ledger, spec) if target is None else None,
    )


def refuse_own_outputs(sink: Staging, spec: Spec, target: Target | None, store_uri: str) -> None:
    """Raise NeedsChange if the paths of the source lead to where the write puts its files. What lies there nobody lists."""
    outputs = outputs_of(target, store_uri)
    if target is None and sink.output is not None:
        outputs = (sink.output, *outputs)
    refuse(find_path_into(outputs, spec.source.paths))


def _is_source(target: Target | None, source: Source, source_tables: Sequence[PinnedIceberg | None]) -> bool:
    """Whether a table would be read and written by one write, under whatever name."""
    if target is None:
        return False
    identities = {table.table_uuid for table in source_tables if table is not None}
    # Where paths of files lead, `refuse_own_outputs` has looked.
    uris = [uri for member in source.members if member.title is not None for uri in member.uris.values()]
    is_place = any(is_one_place(uri, output.uri) for uri in uris for output in target.outputs)
    return is_place or target.identity in identities


def _lost_rows(ledger: Ledger, spec: Spec) -> tuple[int, int] | None:
    """Return the last epoch before this one that has committed rows which this one does not give again; None if none has."""
    if ledger.key.stage or takes_the_whole_source(operation_of(spec.sink, None)):
        return None
    return index_of(ledger).up_to(ledger.key.epoch - 1).in_table


def _staged_for_another(ledger: Ledger, attempts: Sequence[int], now: Target | None) -> int | None:
    """Return the first of these attempts that staged its files for another table than the one of now; None if none did.

    `now` is None where there is no table: it was dropped, and one that is made from the steps' output would be another.
    """
    for number in attempts:
        then = target_of(ledger, number)
        if then is not None and then.identity != (now.identity if now is not None else None):
            return number
    return None
