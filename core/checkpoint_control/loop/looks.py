"""Looks for what no epoch has taken yet: which is due, and what it finds. A look is a hint, and changes no record.

What an epoch takes its first driver fixes; that a look misses something, or sees what the driver passes over, costs an epoch
that is late, or one without rows. What is remembered between looks is lost with the process, and found again.
"""

from __future__ import annotations

import datetime
import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, assert_never

from checkpoint_commit.catalogs.source_tables import list_snapshots
from checkpoint_commit.ports import FoundItem
from checkpoint_control.decision.triggers import Between, News, is_enough, next_time
from checkpoint_control.loop.keys_objects import compacting
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows.selecting import selection_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.ledger.epoch_index import index_of, of_the_source
from checkpoint_protocol.manifest.sources.kafka_source import KafkaSource
from checkpoint_protocol.manifest.sources.source import FilesSource, IcebergSource, LanceSource
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.uris import local_path
from checkpoint_protocol.records import PinnedTable, TakenFile, TakenRecord
from checkpoint_protocol.records.formats.lance import PinnedLance
from checkpoint_protocol.records.formats.operations import AddColumns, operation_of

if TYPE_CHECKING:
    from checkpoint_commit.catalogs.named import CatalogBook

#: Of so many new files each is told apart from those that come later; of more only their number is known.
_MOST_REMEMBERED: Final = 1_000_000
#: What a record holds.
_MOST: Final = (1 << 63) - 1


#: Gives what each member of a source has now, given what was taken; None: it cannot be looked at, so that a driver has to.
#: Raises CheckpointError as reading does.
ListNews = Callable[[TakenRecord, "Known"], Iterator[FoundItem] | None]


class Known:
    """What the epochs up to one have taken, in eight bytes for each name, and for each name with what it held.

    `keeps_fragments`: what was taken is kept as it is recorded, too, in `fragments`, by name.
    """

    def __init__(self, epoch: int, files: Iterable[TakenFile] = (), *, keeps_fragments: bool = False) -> None:
        self.epoch = epoch
        self.fragments: dict[str, TakenFile] = {}
        names, versions = array("Q"), array("Q")
        for file in files:
            names.append(_digest(file.path))
            versions.append(_digest(file.path, file.etag))
            if keeps_fragments:
                self.fragments[file.path] = file
        self._names, self._versions = array("Q", sorted(names)), array("Q", sorted(versions))

    def has_name(self, name: str) -> bool:
        return _is_in(self._names, _digest(name))

    def has(self, name: str, version: str) -> bool:
        return self.has_digest(_digest(name, version))

    def has_digest(self, digest: int) -> bool:
        return _is_in(self._versions, digest)


def known_of(spec: Spec, epoch: int, files: Iterable[TakenFile]) -> Known:
    """Return what the epochs up to one have taken, as looks of this write need it."""
    # Its own commits change each fragment, so that names alone do not tell which are new.
    return Known(epoch, files, keeps_fragments=spec.sink.mode == "AddColumns")


def _is_in(numbers: array[int], number: int) -> bool:
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number


def _digest(*texts: str) -> int:
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


@dataclass(slots=True)
class Looks:
    """The looks of one write. `now` is the wall clock; `is_asked`: a person waits, so that no schedule counts."""

    spec: Spec
    list_news: ListNews
    now: Callable[[], datetime.datetime]
    is_asked: bool = False
    _known: Known | None = None
    _taken: TakenRecord | None = None
    _news: News | None = None
    _looked_at: datetime.datetime | None = None
    #: Of the last look, what was new.
    _seen: set[int] = field(default_factory=set)
    #: What was new before the last epoch, which has left nothing, and has not taken it: its driver passes it over.
    _passed_over: set[int] = field(default_factory=set)

    def between(self, ledger: Ledger) -> Between:
        """Return what is known after this epoch, which is committed; look at the source if that is due."""
        now, trigger = self.now(), self.spec.trigger
        assert trigger is not None
        if self._known is None or self._known.epoch != ledger.key.epoch:
            self._begin_after(ledger)
        if not self.is_asked and (due_in_s := self._due_in_s(ledger, now)) > 0:
            return Between(due_in_s, self._news)
        self._news, self._looked_at = self._look(), now
        least = None if self.is_asked else trigger.at_least
        if is_enough(least, self._news, now):
            return Between(0.0, self._news, begins=True)
        return Between(max(0.0, (next_time(trigger, now) - now).total_seconds()), self._news)

    def news_since(self, ledger: Ledger) -> News:
        """Return what the source has that no epoch up to this one has taken."""
        self._begin_after(ledger)
        return self._look()

    def _due_in_s(self, ledger: Ledger, now: datetime.datetime) -> float:
        """Counted from the last look, or from the beginning of this epoch: a look that is late is made at once, and is one."""
        trigger = self.spec.trigger
        assert trigger is not None
        reader = of_the_source(ledger)
        if self._looked_at is None:
            record = reader.inputs.read_committed_input()
            if record is not None and record.totals.left:
                return 0.0
        launch = reader.attempts.read_launch(1)
        began = launch.began if launch is not None else None
        after = self._looked_at or (datetime.datetime.fromisoformat(began.at) if began is not None else None)
        # A clock that was ahead when the epoch began must not put off the next one for ever.
        return 0.0 if after is None else (next_time(trigger, min(after, now)) - now).total_seconds()

    def _begin_after(self, ledger: Ledger) -> None:
        index = index_of(ledger, compacting(ledger.store, ledger.key.uid))
        taken = index.ensure(ledger.key.epoch)
        known = known_of(self.spec, ledger.key.epoch, index.files(taken))
        record = of_the_source(ledger).inputs.read_committed_input()
        is_all_taken = self._known is not None and record is not None and not record.totals.left
        offered = self._passed_over | self._seen if is_all_taken else set()
        self._passed_over = {version for version in offered if not known.has_digest(version)}
        self._known, self._taken, self._news, self._looked_at, self._seen = known, taken, None, None, set()

    def _look(self) -> News:
        assert self._known is not None
        assert self._taken is not None
        found = self.list_news(self._taken, self._known)
        if found is None:
            return News(counted=False)
        files = size_bytes = 0
        since: datetime.datetime | None = None
        self._seen = set()
        for item in found:
            version = _digest(item.name, item.version)
            if version in self._passed_over:
                continue
            if len(self._seen) < _MOST_REMEMBERED:
                self._seen.add(version)
            files, size_bytes = files + item.files, size_bytes + item.size_bytes
            if item.made_at is not None and (since is None or item.made_at < since):
                since = item.made_at
        # Tables say themselves how many there are.
        return News(min(files, _MOST), min(size_bytes, _MOST), since)


def refuse_paths_of_pods(spec: Spec) -> None:
    """NeedsChange for files on the disks of drivers, where an operator in a cluster cannot look."""
    for path in spec.source.paths:
        if spec.trigger is not None and local_path(path) is not None:
            raise NeedsChange(
                reasons.MANIFEST_INVALID,
                f"spec.trigger: {path} is a path in the driver's pod, where the operator cannot look for new files; read a "
                "bucket, or leave the trigger out and set another runNonce for what is new",
            )


def open_news(spec: Spec, settings: Settings, catalogs: CatalogBook | None = None) -> ListNews:
    """Return what lists the new input of a manifest's source."""

    def list_news(taken: TakenRecord, known: Known) -> Iterator[FoundItem] | None:
        if spec.source.keyed is not None:
            return None
        found: list[Iterator[FoundItem]] = []
        for number, member in enumerate(spec.source.members):
            table = taken.tables[number] if taken.tables else None
            match member:
                case FilesSource():
                    found.append(_files(member, settings, known, takes_replaced=spec.on_replaced != "Skip"))
                case IcebergSource():
                    takes_changes = spec.source.changes == "Upserts"
                    found.append(list_snapshots(member, settings, catalogs, table, takes_changes=takes_changes))
                case LanceSource():
                    found.append(_fragments(member, settings, known, table, spec))
                case KafkaSource():
                    return None  # only a driver has the client
                case other:
                    assert_never(other)
        return chain.from_iterable(found)

    return list_news


def listing_of(spec: Spec, settings: Settings, catalogs: CatalogBook | None = None) -> Callable[[], Iterator[FoundItem] | None]:
    """Return what lists all that a manifest's source has, whatever epochs have taken."""
    list_news = open_news(spec, settings, catalogs)
    return lambda: list_news(TakenRecord(token=new_token(), epoch=0), Known(0))


def _files(source: FilesSource, settings: Settings, known: Known, *, takes_replaced: bool) -> Iterator[FoundItem]:
    """Give the files that were not taken as they are now. A file that was replaced is one; whoever takes it says what it is."""
    files = SourceFiles(settings)
    for path in source.paths:
        for file in files.find(path):
            if known.has(file.path, file.etag) or (known.has_name(file.path) and not takes_replaced):
                continue
            made_at = datetime.datetime.fromtimestamp(file.modified_us / 1e6, datetime.UTC)
            yield FoundItem(file.path, file.etag, size_bytes=file.size_bytes, made_at=made_at)


def _fragments(
    source: LanceSource, settings: Settings, known: Known, before: PinnedTable | None, spec: Spec
) -> Iterator[FoundItem]:
    """Give the fragments that were not taken as they are now; none while the version is the one that was taken.

    Of a write that adds columns, whose own commit changes each fragment: those that its driver would take.
    """
    from checkpoint_formats.lance.reader import is_known, list_fragments

    operation = operation_of(spec.sink, None)
    added = operation if isinstance(operation, AddColumns) else None
    before = before if isinstance(before, PinnedLance) else None
    takes_changes = spec.source.changes == "Upserts" or (added is not None and added.only == "Changed")
    columns = selection_of(spec.source).columns_to_read
    for file in list_fragments(source, settings, before, columns, added, takes_changes=takes_changes):
        is_taken = known.has(file.path, file.etag) if added is None else is_known(file, known.fragments.get(file.path))
        if (takes_changes and before is not None) or not is_taken:
            yield FoundItem(file.path, file.etag, size_bytes=file.size_bytes)
