"""Reads a checkpoint store for people: everything that can be read is shown, and what cannot is named.

Unlike the ledger, which refuses to go on at a record that it cannot read, this passes on to the next; no rule rests on it.
Called by the commands `inspect` and `status`. Puts nothing, makes no folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from checkpoint_control.views.epoch_inspection import EpochInspector, is_number
from checkpoint_control.views.inspected import LenientReader, ShownCommit, ShownEpoch, ShownError, ShownStore, ShownWrite
from checkpoint_protocol import reasons, writes
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.places.storage import StorageSettings, disk_path
from checkpoint_protocol.records import NameRecord, WriteRecord
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObjectStore, open_store, translate_store_error


def open_existing(uri: str, storage: StorageSettings) -> ObjectStore | None:
    """Return the store, or None if it is a folder of this machine that does not exist: opening one would make it."""
    folder = disk_path(uri, storage)
    if folder is not None:
        try:
            is_folder, is_there = folder.is_dir(), folder.exists()
        except OSError as error:
            raise translate_store_error(error, uri) from error
        if not is_there:
            return None
        if not is_folder:
            raise NeedsChange(reasons.STORE_UNAVAILABLE, f"{uri} is a file and no folder; correct the URI")
    return open_store(uri, storage)


def inspect_store(store: ObjectStore, only: str | None = None) -> ShownStore:
    """Return what the store holds; of one write (by uid, name or namespace/name) if `only` is given.

    Raises NeedsChange if there is no such write, Retryable if the store does not answer.
    """
    inspector = Inspector(store, shows_rows=True)
    writes = inspector.read_writes(only)
    return ShownStore(
        uri=store.uri,
        writes=writes,
        errors=inspector.errors,
        strays=tuple(sorted(inspector.reader.strays)),
    )


@dataclass(slots=True)
class Inspector:
    """Reads one store, and remembers what could not be read.

    `shows_rows`: each row that failed is shown, and not only their number.
    """

    store: ObjectStore
    shows_rows: bool = False
    reader: LenientReader = field(init=False)
    _epochs: EpochInspector = field(init=False)

    def __post_init__(self) -> None:
        self.reader = LenientReader(self.store)
        self._epochs = EpochInspector(self.reader, self.shows_rows)

    @property
    def errors(self) -> tuple[ShownError, ...]:
        """The objects that could not be read so far, or that must be there and are not."""
        return self.reader.errors

    def read_epoch(self, key: EpochKey) -> ShownEpoch:
        return self._epochs.read(key)

    def read_commit(self, key: EpochKey) -> ShownCommit | None:
        return self._epochs.read_commit(key)

    def read_writes(self, only: str | None) -> tuple[ShownWrite, ...]:
        names = self._read_names()
        if only is None:
            found = self._uids_in(self.reader.list(f"{layout.CONTROL}/"), self.reader.list(f"{layout.STAGED}/"))
            uids = sorted(found | names.keys(), key=lambda uid: (sorted(names[uid]) if uid in names else ["~"], uid))
        else:
            uids = [self._resolve(only, names)]
        return tuple(self.read_write(uid, tuple(sorted(names.get(uid, ())))) for uid in uids)

    def find_writes(self, only: str | None) -> dict[str, str]:
        """Return the uids of all writes of the store, or of one, each with what it is called: namespace/name, or its uid."""
        names = self._read_names()
        uids = sorted(self._uids_in(self.reader.list(f"{layout.CONTROL}/"), ())) if only is None else [self._resolve(only, names)]
        found = {}
        for uid in uids:
            record = self.reader.read(layout.write_path(uid), WriteRecord)
            found[uid] = f"{record.namespace}/{record.name}" if record is not None else uid
        return found

    def read_write(self, uid: str, names: tuple[str, ...]) -> ShownWrite:
        listed = [*self.reader.list(f"{layout.CONTROL}/{uid}/"), *self.reader.list(f"{layout.STAGED}/{uid}/")]
        record = self.reader.try_to_read(layout.write_path(uid), lambda: writes.read_write(self.store, uid))
        by_epoch = self._by_epoch(uid, listed)
        if by_epoch and layout.write_path(uid) not in listed:
            self.reader.note_missing(layout.write_path(uid), "the write has epochs")
        scope, _, name = names[0].rpartition("/") if names else ("", "", "")
        identity = record.identity if record else {}
        source, sink = identity.get("source"), identity.get("sink")
        return ShownWrite(
            uid=uid,
            namespace=record.namespace if record else scope.rpartition("/")[2] or None,
            name=record.name if record else name or None,
            names=names,
            is_deleted=self.reader.is_deleted(uid),
            source=source if isinstance(source, dict) else None,
            sink=sink if isinstance(sink, dict) else None,
            epochs=tuple(self._epochs.read_listed(EpochKey(uid, epoch), paths) for epoch, paths in sorted(by_epoch.items())),
        )

    def _read_names(self) -> dict[str, set[str]]:
        """Return the names of each uid. One that was forgotten means its newest uid only."""
        newest: dict[str, tuple[int, str]] = {}
        for path in self.reader.list(f"{layout.NAMES}/"):
            if (parts := layout.name_of(path)) is None:
                self.reader.strays.append(path)
                continue
            name, times = f"{parts[0]}/{parts[1]}", parts[2]
            if times >= newest.get(name, (0, ""))[0]:
                newest[name] = times, path
        names: dict[str, set[str]] = defaultdict(set)
        for name, (_, path) in newest.items():
            if (record := self.reader.read(path, NameRecord)) is not None:
                names[record.uid].add(name)
        return names

    def _uids_in(self, *listings: Iterable[str]) -> set[str]:
        uids: set[str] = set()
        for path in (path for listing in listings for path in listing):
            uid, separator, _ = path.partition("/")[2].partition("/")
            if separator and is_uid(uid):
                uids.add(uid)
            else:
                self.reader.strays.append(path)
        return uids

    def _resolve(self, wanted: str, names: dict[str, set[str]]) -> str:
        """Return the uid of what the user wrote: a uid, a name, namespace/name, or the same of one cluster."""
        every = {name: uid for uid, of_uid in names.items() for name in of_uid}
        named = [wanted] if wanted in every else sorted(name for name in every if name.endswith(f"/{wanted}"))
        meant = sorted({every[name] for name in named})
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise NeedsChange(
                reasons.NAME_AMBIGUOUS,
                f"{wanted!r} is a name in several namespaces or clusters of {self.store.uri}; say which: {', '.join(named)}",
            )
        if is_uid(wanted) and any(self.reader.list(f"{folder}/{wanted}/") for folder in (layout.CONTROL, layout.STAGED)):
            return wanted
        known = ", ".join(sorted(every)) or "none"
        raise NeedsChange(reasons.WRITE_UNKNOWN, f"{self.store.uri} has no write {wanted!r}; its names are: {known}")

    def _by_epoch(self, uid: str, listed: Iterable[str]) -> dict[int, list[str]]:
        epochs: dict[int, list[str]] = defaultdict(list)
        for path in listed:
            number, separator, _ = path.partition("/")[2].removeprefix(f"{uid}/").partition("/")
            if separator and is_number(number):
                epochs[int(number)].append(path)
            elif layout.is_code(path, uid) or layout.is_of_index(path, uid):
                continue
            elif path not in (layout.write_path(uid), layout.deleted_path(uid)):
                self.reader.strays.append(path)
        return epochs


def is_uid(text: str) -> bool:
    """Whether a text can be the uid of a write."""
    try:
        EpochKey(text, 1)
    except ValueError:
        return False
    return True
