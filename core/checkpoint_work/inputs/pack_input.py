"""The input of a stage that packs columns: the fragments of a version that get files, and what is staged for each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import (
    InputRecord,
    LanceOrigin,
    LancePack,
    LancePackTarget,
    PackedColumns,
    PackedPiece,
    StagedColumns,
)
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.inputs import SourceFile
from checkpoint_protocol.store.parts import Input


def list_fragments_to_pack(ledger: Ledger, target: LancePackTarget, storage: StorageSettings) -> InputRecord:
    """Return each fragment of the version that has rows of which something is staged, or that are to be NULL.

    Reads the seals of the epoch that the stage is of. NeedsChange(SourceChanged) where it cannot be told any more where rows are.
    """
    from checkpoint_formats.failures import gone
    from checkpoint_formats.lance.changed import changes_of
    from checkpoint_formats.lance.datasets import has_values, open_dataset
    from checkpoint_formats.lance.packing.lineage import follow

    epoch = Ledger(ledger.store, EpochKey(ledger.key.uid, ledger.key.epoch), ledger.pause, ledger.map_all)
    launch = epoch.attempts.read_launch(target.attempt)
    epoch_input = epoch.inputs.read_input(launch.input_since) if launch is not None else None
    if launch is None or epoch_input is None:
        raise Corrupt(
            reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: records of attempt {target.attempt} of {epoch.key} are gone"
        )
    staged: dict[int, list[tuple[PackedPiece, float]]] = defaultdict(list)
    attempts = (*launch.counted, target.attempt)
    for piece, size_bytes in _pieces(epoch, attempts):
        staged[piece.part.fragment].append((piece, size_bytes))
    dataset = open_dataset(target.uri, storage, target.at_version)
    if dataset is None:
        raise gone(f"version {target.at_version}", f"the Lance dataset {target.uri}", "keep versions while a write runs")
    table = _table_of(epoch_input)
    origins = follow(dataset, fragments_of(epoch_input), table.at_version)
    # Values of rows that have changed are not to stay where the steps gave nothing for them.
    changes = None
    if launch.source.where is not None or any(
        seal.rows_read != seal.rows_written for seal in epoch.chains.counted_seals(attempts)
    ):
        changes = changes_of(table, storage)
    files = []
    for number, origin in sorted(origins.items()):
        found = [each for former in _inputs_in(origin) for each in staged.get(former, ())]
        fragment = dataset.get_fragment(number)
        if not found:
            inputs = _inputs_in(origin)
            is_cleared = target.replaces or (changes is not None and any(len(changes.places(one)) for one in inputs))
            if not is_cleared or not has_values(dataset, fragment, target.columns):
                continue
        size_bytes = round(sum(size for _, size in found)) or sum(file.file_size_bytes or 0 for file in fragment.data_files())
        files.append(
            SourceFile(
                path=f"{target.uri.rstrip('/')} fragment {number}",
                etag="",
                size_bytes=max(1, int(size_bytes)),
                unit="rows",
                end=fragment.physical_rows,
                fragment=number,
                pack=LancePack(origin=origin, pieces=tuple(piece for piece, _ in found)),
            )
        )
    packed = PackedColumns(columns=target.columns, replaces=target.replaces)
    if changes is not None:
        packed = packed.model_copy(update={"changed": table.changed, "input_at": table.at_version})
    return InputRecord(
        token=new_token(),
        files=tuple(files),
        arrow_schema=target.arrow_schema,
        tables=(PinnedLance(uri=target.uri, at_version=target.at_version, packed=packed),),
    )


def _pieces(epoch: Ledger, attempts: tuple[int, ...]) -> Iterator[tuple[PackedPiece, float]]:
    """Give the parts of the staged files that count, and about how many bytes each has."""
    for seal in epoch.chains.counted_seals(attempts):
        for file in seal.files:
            if not isinstance(file, StagedColumns):
                raise NeedsChange(
                    reasons.STAGED_RESULT_REFUSED,
                    f"a seal names the {file.format} file {', '.join(file.paths)}, which has no columns",
                )
            skip = 0
            for part in file.parts:
                yield PackedPiece(path=file.path, skip=skip, part=part), file.size_bytes * part.rows / max(1, file.rows)
                skip += part.rows


def fragments_of(record: Input) -> dict[int, tuple[int, frozenset[str]]]:
    """Return the fragments of an input: of each, how many rows it has, and the names of its data files."""
    return {
        file.fragment: (file.end or 0, frozenset(file.etag.split("|")[0].split(",")))
        for file in record.files
        if file.fragment is not None
    }


def _table_of(record: Input) -> PinnedLance:
    """Return the version of the dataset that an input is of."""
    (table,) = record.tables
    assert isinstance(table, PinnedLance)
    return table


def _inputs_in(origin: LanceOrigin) -> Iterator[int]:
    """Give the fragments of the input of which a fragment has rows."""
    if origin.is_input:
        yield origin.fragment
    for part in origin.made_of:
        yield from _inputs_in(part)
