"""The merges of an upsert: stages of its epoch, each of which has read the table at one head of it.

    merge-<snapshot>            reads the data files that the table has at that snapshot. Of a table without one it is merge-0.
    merge-<snapshot>-<since>    leaves the files out that an earlier merge has read, at the snapshot `since`.
    rewrite-<snapshot>...       does the same where the table asks for copy-on-write: it writes data files anew.

Which of the two ways is in the name, so that all attempts of a stage, which may share a data file, go the same one, whatever
becomes of the table's properties. Merges of both ways may follow each other: a data file is read by one of them.

What a merge finds for `whenMatched: Ignore` are rows of staged files, which any data file of the table may have the keys of. So
it names them by their positions in any case. Where the table asks for copy-on-write, one more stage follows before the commit:

    rewrite-staged-<hash>       writes the staged files anew without the rows that the merges have named, whose names are hashed.

Several may be done of one snapshot, as two operators need not see the same merges done. They are stages of their own: whichever
attempt fixes the input of a stage, what it has read is what its name says.

A data file never changes, so that what was found in it holds for as long as the table has it: deletes of others take rows away,
and that a row is deleted twice is harmless. What comes anew (an append, a compaction) is read by the next merge. But rows that
others have deleted would come back with a file that was written anew: then all is merged again (`iceberg/changes/rewrites.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from checkpoint_commit.changes import StagedChange, as_staged
from checkpoint_commit.iceberg.changes.change import TableVersion
from checkpoint_commit.iceberg.changes.replaced import Extent, Matching
from checkpoint_commit.iceberg.changes.rewrites import Rewritten, find_outdated, rewritten_in
from checkpoint_commit.iceberg.changes.vectors import find_outdated_vectors
from checkpoint_commit.results import gather
from checkpoint_commit.sinks.merges import read_rest
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import Corrupt, NeedsChange
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.where import parse_where, predicates_of
from checkpoint_protocol.records import IcebergDeletes, IcebergRewrite, Merge

_NAME: Final = re.compile(r"(?:merge|rewrite)-([0-9]+)(-[0-9]+)?")
#: What is said of sixteen keys: of each two bounds, or a hundred values.
_LONGEST_WHERE: Final = 1 << 20
_MOST_PREDICATES: Final = 32


def stage_name(snapshot_id: int | None, since: int | None = None, *, rewrites: bool = False) -> str:
    way = "rewrite" if rewrites else "merge"
    return f"{way}-{snapshot_id or 0}" + (f"-{since}" if since is not None else "")


def _snapshot_read_by(stage: str) -> int | None:
    """Return the snapshot of a merge's name, 0 for a table without one; None if the name is no merge's."""
    named = _NAME.fullmatch(stage)
    return int(named[1]) if named is not None else None


@dataclass(frozen=True, slots=True)
class Merged:
    """What merges have found up to one snapshot of the table. `where` is true for all keys of the upsert, if something is known.

    `snapshot_id`: None where the table had none. `included`: by data files, the delete files whose rows the vectors have, too.
    `stages`: the merges.
    """

    snapshot_id: int | None
    files: tuple[IcebergDeletes, ...]
    where: str | None = None
    rewritten: Mapping[str, Rewritten] = field(default_factory=dict)
    included: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenMerges:
    """What merges have found so far of the rows that the table has at its head; `unread`: what none of them has read.

    `merged`: None where none is done, or what was done is out of date; `moved_by`: what the head is.
    """

    head: int | None
    merged: Merged | None
    unread: str | None
    moved_by: str

    @property
    def since(self) -> int | None:
        return self.merged.snapshot_id if self.merged is not None else None


def see_merges(version: TableVersion, ledger: Ledger) -> SeenMerges:
    """Return what is known of the head of a version of the table."""
    head = version.head
    done = done_merges(ledger)
    last = latest(version.metadata, head, done)
    merged = read_merged(ledger, last, done) if last is not None else None
    unread: str | None = "all data files"
    if merged is not None and (find_outdated(version, merged.rewritten) or find_outdated_vectors(version, merged)) is not None:
        merged = None
    if merged is not None:
        unread = find_unread(version, merged)
    if head is None:
        return SeenMerges(None, merged, unread, "nobody")
    said = head.summary.operation.value if head.summary is not None else "unknown operation"
    return SeenMerges(head.snapshot_id, merged, unread, f"snapshot {head.snapshot_id} ({said})")


def done_merges(ledger: Ledger) -> Mapping[int | None, Ledger]:
    """Return the merges of an epoch that are done, by the snapshots that they have read."""
    found: dict[int | None, Ledger] = {}
    # Of one snapshot, what has read all of it goes before what has gone on from another one, which may be out of date.
    for key in sorted(writes.list_stages(ledger.store, ledger.key), key=lambda key: key.stage.count("-")):
        number = _snapshot_read_by(key.stage)
        if number is not None and (number or None) not in found:
            stage = Ledger(ledger.store, key, ledger.pause, ledger.map_all)
            if stage.commits.read_commit() is not None:
                found[number or None] = stage
    return found


def latest(metadata: TableMetadata, head: Snapshot | None, done: Mapping[int | None, Ledger]) -> Ledger | None:
    """Return the merge that has read the table at the latest of the head's ancestors; None if none has."""
    for snapshot in ancestors_of(head, metadata):
        if snapshot.snapshot_id in done:
            return done[snapshot.snapshot_id]
    return done.get(None) if head is None else None


def read_merged(ledger: Ledger, latest: Ledger, done: Mapping[int | None, Ledger]) -> Merged:
    """Return what a merge has found, with those that it goes on from."""
    keys = ledger.merges.read_keys()
    files: list[IcebergDeletes] = []
    rewritten: dict[str, Rewritten] = {}
    included: dict[str, frozenset[str]] = {}
    stage: Ledger | None = latest
    passed: set[str] = set()
    while stage is not None:
        if stage.key.stage in passed:  # a driver has the key of its write, and may have put such a record
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: the stage {stage.key} goes on from itself")
        passed.add(stage.key.stage)
        record = stage.commits.read_commit()
        launch = stage.attempts.read_launch(record.attempts) if record is not None else None
        if record is None or launch is None or not isinstance(launch.operation, Merge):
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: records of the stage {stage.key} are gone")
        change = gather(stage, record.attempts, as_staged).change
        assert isinstance(change, StagedChange)
        anew: list[IcebergRewrite] = []
        with_vectors: set[str] = set()
        for file in change.files:
            match file:
                case IcebergDeletes():
                    files.append(file)
                    if file.content_offset is not None:
                        with_vectors.add(file.data_file)
                case IcebergRewrite():
                    anew.append(file)
                case _:
                    raise NeedsChange(
                        reasons.STAGED_RESULT_REFUSED,
                        f"a seal of the stage {stage.key} names {', '.join(file.paths)}, which no merge stages",
                    )
        read = stage.inputs.read_input(launch.input_since)
        assert read is not None
        # A file that came back was read twice: what was read last is there once.
        rewritten = {**rewritten_in(str(stage.key), read, anew), **rewritten}
        for source in read.files if with_vectors else ():
            if source.path in with_vectors and source.iceberg is not None:
                deletes = {delete.path for delete in source.iceberg.deletes}
                included[source.path] = included.get(source.path, frozenset()) | deletes
        since = launch.operation.since
        if since is not None and since not in done:
            raise Corrupt(reasons.RECORD_UNREADABLE, f"{ledger.store.uri}: the stage {stage_name(since)} of {ledger.key} is gone")
        stage = done[since] if since is not None else None
    where = _short(keys.where) if keys is not None else None
    return Merged(_snapshot_read_by(latest.key.stage) or None, tuple(files), where, rewritten, included, tuple(sorted(passed)))


def named_staged(merged: Merged, is_staged: Callable[[str], bool]) -> Mapping[str, frozenset[str]]:
    """Return by staged files, which `is_staged` says of a path, the delete files that name rows of them."""
    found: dict[str, set[str]] = {}
    for deletes in merged.files:
        if is_staged(deletes.data_file):
            found.setdefault(deletes.data_file, set()).add(deletes.path)
    return {path: frozenset(names) for path, names in found.items()}


def with_rest(ledger: Ledger, merged: Merged, named: Mapping[str, frozenset[str]]) -> Merged | None:
    """Return what merges have found, with staged files that were written anew in the place of those that have `named` rows.

    None: they are not written yet. NeedsChange if what was written is not without all of these rows, and only these.
    """
    if (made := read_rest(ledger, merged.stages)) is None:
        return None
    anew = [file for file in made.files if isinstance(file, IcebergRewrite)]
    rest = rewritten_in(str(made.key), made.read, anew)
    ends = {file.path: file.end for file in made.read.files}
    rows = Counter[str]()
    for each in anew:
        rows[each.data_file] += each.rows
    if len(anew) < len(made.files) or {path: each.deletes for path, each in rest.items()} != named or rows != ends:
        raise NeedsChange(
            reasons.STAGED_RESULT_REFUSED,
            f"the seals of the stage {made.key} do not take the place of the staged files that have rows to leave out",
        )
    files = tuple(deletes for deletes in merged.files if deletes.data_file not in rest)
    return replace(merged, files=files, rewritten={**merged.rewritten, **rest})


def _short(where: str | None) -> str | None:
    """Return a condition if it is as short as those that drivers make are: it is held against each data file of the table."""
    if where is None or len(where) > _LONGEST_WHERE:
        return None
    return where if len(list(islice(predicates_of(parse_where(where)), _MOST_PREDICATES + 1))) <= _MOST_PREDICATES else None


def find_unread(version: TableVersion, merged: Merged) -> str | None:
    """Say which data file of the table no merge has read, and may have a row with one of the keys; None if there is none."""
    head = version.head
    if head is None or head.snapshot_id == merged.snapshot_id:
        return None
    then = version.metadata.snapshot_by_id(merged.snapshot_id) if merged.snapshot_id is not None else None
    if merged.snapshot_id is not None and then is None:
        return f"snapshot {head.snapshot_id}, whose history no longer reaches snapshot {merged.snapshot_id}"
    may_match = Matching(version.metadata, merged.where) if merged.where is not None else None
    for file in _new_files(version, then):
        if may_match is None or may_match.extent(file) is not Extent.NONE:
            return f"the data file {file.file_path}"
    return None


def _new_files(version: TableVersion, then: Snapshot | None) -> Iterator[DataFile]:
    """Give the data files of the head that an earlier snapshot has not. Manifests that both have are not opened."""
    before, now = replace(version, head=then).manifests, version.manifests
    same = {manifest.manifest_path for manifest in before} & {manifest.manifest_path for manifest in now}
    known = {file.file_path for file in _live(version, [each for each in before if each.manifest_path not in same])}
    for file in _live(version, [each for each in now if each.manifest_path not in same]):
        if file.file_path not in known:
            yield file


def _live(version: TableVersion, manifests: list[ManifestFile]) -> Iterator[DataFile]:
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(version.io, discard_deleted=True):
                yield entry.data_file
