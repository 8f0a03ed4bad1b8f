"""Reading without giving up: what cannot be read is noted, and the next is read. For people; no rule rests on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from checkpoint_control.views.inspected import ShownError
from checkpoint_protocol import writes
from checkpoint_protocol.errors import CheckpointError, Retryable
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import CleanedRecord, CommitRecord, Record
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout
from checkpoint_protocol.store.object_store import ObjectStore
from checkpoint_protocol.store.put_once import read as read_record

#: A store that leaves so many questions unanswered is down: then the rest is not asked, each with its own patience.
_MOST_UNANSWERED: Final = 3

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Record)


@dataclass(slots=True)
class LenientReader:
    """Reads one store. `wrong`: by path, what cannot be read, or must be there and is not.

    `strays`: objects seen so far that are no records.
    """

    store: ObjectStore
    strays: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    _deletions: dict[str, bool | None] = field(default_factory=dict)
    _unanswered: int = 0

    @property
    def errors(self) -> tuple[ShownError, ...]:
        """The objects that could not be read so far, or that must be there and are not."""
        return tuple(ShownError(object=path, message=message) for path, message in sorted(self.wrong.items()))

    def list(self, folder: str) -> list[str]:
        return [stored.path for stored in self.store.list(folder)]

    def read(self, path: str, model: type[_R]) -> _R | None:
        return self.try_to_read(path, lambda: read_record(self.store, path, model))

    def try_to_read(self, path: str, ask: Callable[[], _T | None]) -> _T | None:
        """Return what is read; None, with an error noted, if it cannot be. Raises Retryable once the store seems down."""
        try:
            return ask()
        except CheckpointError as error:
            if isinstance(error, Retryable):
                self._unanswered += 1
                if self._unanswered > _MOST_UNANSWERED:
                    raise
            self.wrong[path] = error.message
            return None

    def is_deleted(self, uid: str) -> bool | None:
        """Whether a write was deleted; None if that cannot be read."""
        if uid not in self._deletions:
            path = layout.deleted_path(uid)
            note = self.try_to_read(path, lambda: writes.read_deleted(self.store, uid))
            self._deletions[uid] = None if path in self.wrong else note is not None
        return self._deletions[uid]

    def _is_cleared(self, place: str) -> bool:
        """Whether a deletion, or a cleaner, has removed what was staged at `<uid>/<epoch>/...`."""
        uid, _, rest = place.partition("/")
        epoch = layout.epoch_of(f"{layout.control_folder(uid)}{rest}", layout.control_folder(uid))
        if self.is_deleted(uid) or epoch is None:
            return bool(self.is_deleted(uid))
        at = EpochLayout(EpochKey(uid, epoch))
        commit = self.read(at.commit_record, CommitRecord)
        return (commit is not None and commit.was_deleted) or self.read(at.cleaned, CleanedRecord) is not None

    def note_missing(self, path: str, why: str) -> None:
        folder, _, rest = path.partition("/")
        if folder == layout.STAGED and self._is_cleared(rest):
            return  # deletion has removed what was staged
        self.wrong.setdefault(path, f"{self.store.uri}/{path} is not there, though {why}")
