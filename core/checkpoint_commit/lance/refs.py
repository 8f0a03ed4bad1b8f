"""The tag of a write's Lance versions: whose it is, and setting it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checkpoint_commit.lance.history import LanceHistory, VersionGone
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable, one_line
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.tables.lance import EPOCH_VARIABLE


@dataclass(frozen=True, slots=True)
class LanceTag:
    """What a manifest names; it may hold the number of the epoch as a variable."""

    name: str

    def of(self, key: EpochKey) -> str:
        return self.name.replace(EPOCH_VARIABLE, str(key.epoch))

    def refuse(self, dataset: Any, history: LanceHistory, key: EpochKey) -> None:
        """See lance_tags.TaggedTable.refuse_tag."""
        at = self._version(dataset, self.of(key))
        if at is not None and not _is_of(key, at, dataset, history):
            raise self._taken(key, history.uri, at)

    def set(self, dataset: Any, history: LanceHistory, key: EpochKey, version: int) -> None:
        """See lance_tags.TaggedTable.set_tag."""
        name = self.of(key)
        failed: Exception | None = None
        if (at := self._version(dataset, name)) is None:
            try:
                dataset.tags.create(name, version)
            except (ValueError, OSError) as error:
                failed = error  # another committer has made it just now, or the store did not answer: look
            at = self._version(dataset, name)
        if at == version or (at is not None and _is_of(key, at, dataset, history)):
            return
        if at is not None:
            taken = self._taken(key, history.uri, at)
            raise NeedsChange(taken.reason, f"{taken.message}; the rows are in the dataset, in version {version}")
        if failed is not None and f":{version} does not exist" in str(failed):
            raise NeedsChange(
                reasons.TABLE_UNSUPPORTED,
                f"version {version} of the Lance dataset {history.uri}, which has the rows, was cleaned up before it could get "
                f"the tag {name!r}; leave sink.lance.tag out, and keep versions for longer",
            )
        raise Retryable(
            reasons.STORE_UNAVAILABLE,
            f"the tag {name!r} could not be set on version {version} of {history.uri}"
            + (f": {one_line(failed)}" if failed is not None else ""),
        )

    def _version(self, dataset: Any, name: str) -> int | None:
        """Return the version that a tag is on; None if there is no such tag."""
        try:
            tag = dataset.tags.list().get(name)
        except (ValueError, OSError) as error:
            raise Retryable(
                reasons.STORE_UNAVAILABLE, f"the tags of {dataset.uri} cannot be listed: {one_line(error)}"
            ) from error
        return None if tag is None else int(tag["version"])

    def _taken(self, key: EpochKey, uri: str, version: int) -> NeedsChange:
        way_out = "" if EPOCH_VARIABLE in self.name else f" ({EPOCH_VARIABLE} in it stands for the epoch)"
        return NeedsChange(
            reasons.TAG_EXISTS,
            f"the Lance dataset {uri} has a tag {self.of(key)!r} already, on version {version}; name another one in "
            f"sink.lance.tag{way_out}, or drop that one",
        )


def _is_of(key: EpochKey, version: int, dataset: Any, history: LanceHistory) -> bool:
    """Whether the epoch's commit has made a version. One that has a tag is not cleaned up."""
    try:
        summary = history.summary_of(dataset, version)
    except VersionGone:
        return False
    return summary.key == str(key) and not summary.is_tombstone
