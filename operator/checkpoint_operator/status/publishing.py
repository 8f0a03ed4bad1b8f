"""Writes statuses and events: the only place that does. What they say follows from the round that is given (`round_status.py`,
`events.py`).
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from checkpoint_operator.crd.status_model import Status
from checkpoint_operator.kube.api import Conflict, KubeApi
from checkpoint_operator.objects import owner_of
from checkpoint_operator.session import Session
from checkpoint_operator.status.events import event_body, steps_between, warnings_between
from checkpoint_operator.status.object_status import status_of, status_patch
from checkpoint_operator.status.round_status import Figures, Frame, Outcome, derive
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.secrets import Secrets
from checkpoint_protocol.printable import printable_model

_FIRST_PROGRESS_S, _MOST_PROGRESS_S = 10.0, 60.0
#: What changes with progress alone.
_COUNTS: Final = {
    "activity": None,
    "queue_position": None,
    "progress": None,
    "progressed_at": None,
    "progress_mark": None,
    "tasks_sealed": None,
    "rows_sealed": None,
    "rows_quarantined": None,
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publisher:
    """`clock` says how long ago progress was told, `now` the time that people read. `secrets`: what no status says."""

    api: KubeApi
    cache: Cache
    instance: str
    clock: Callable[[], float]
    now: Callable[[], datetime.datetime]
    secrets: Secrets = field(default_factory=Secrets)
    #: As the status names this operator.
    operator: str | None = None

    def publish(self, key: WriteName, outcome: Outcome, session: Session | None = None, figures: Figures | None = None) -> None:
        """Write the status that follows, and the events, unless they are told. Raises Conflict if the object has changed since.

        Of a session's round also if the manifest has changed since the round began: what was done is not what is asked for now,
        and must not be told as if it were.
        """
        body = self.cache.existing_write(key)
        owner = owner_of(body)
        if session is not None and owner != session.owner:
            raise Conflict(f"the manifest of {key.namespace}/{key.name} was changed")
        now = self.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        before = status_of(body)
        spec = session.spec if session is not None else None
        after = derive(Frame(before, owner, now, spec, self.operator), outcome, figures)
        # Messages quote names and errors of others.
        after = printable_model(after, self.secrets.mask)
        if figures is not None and session is not None and not self._is_due(session, before, after):
            return
        patch = status_patch(body, after)
        if patch is not None:
            self.cache.put_write(self.api.patch_status(key.namespace, key.name, patch))
            for reason, message in warnings_between(before, after):
                self._create_event(body, reason, message, "Warning")
            for reason, message in steps_between(before, after):
                self._create_event(body, reason, message, "Normal")
        if figures is not None and session is not None:
            session.last_patch_s = self.clock()
            session.patches = session.patches + 1 if _is_progress_alone(before, after) else 0

    def try_to_publish(self, key: WriteName, outcome: Outcome) -> None:
        """The same where a round has failed, which is tried again in any case: an error of this one is only logged."""
        try:
            self.publish(key, outcome)
        except CheckpointError as error:
            _log.warning("a status could not be written: %s", error.message)

    def warn(self, body: Mapping[str, Any], reason: str, message: str) -> None:
        """Tell people something about an object, by an event and in the log."""
        self._create_event(body, reason, message, "Warning")

    def _is_due(self, session: Session, before: Status, after: Status) -> bool:
        """Progress alone is told ever more rarely; everything else at once."""
        if _activity_of(before) != _activity_of(after):
            return True
        is_first = any(getattr(after, name) and not getattr(before, name) for name in ("rows_sealed", "rows_quarantined"))
        if is_first or not _is_progress_alone(before, after):
            return True
        interval_s = min(_MOST_PROGRESS_S, _FIRST_PROGRESS_S * 2 ** min(session.patches, 8))
        return before != after and self.clock() - session.last_patch_s >= interval_s

    def _create_event(self, body: Mapping[str, Any], reason: str, message: str, kind: Literal["Normal", "Warning"]) -> None:
        metadata = body["metadata"]
        name = f"{metadata['name']}.{new_token()[:16]}"
        now = self.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        level = logging.WARNING if kind == "Warning" else logging.INFO
        _log.log(level, message, extra={"write": f"{metadata['namespace']}/{metadata['name']}", "reason": reason})
        try:
            self.api.create_event(metadata["namespace"], event_body(body, name, reason, message, now, self.instance, kind))
        except CheckpointError as error:
            # The status says the same; nobody waits for an event.
            _log.warning("an event could not be written: %s", error.message)


def _is_progress_alone(before: Status, after: Status) -> bool:
    return before.model_copy(update=_COUNTS) == after.model_copy(update=_COUNTS)


def _activity_of(status: Status) -> str | None:
    """Return what comes before the numbers of an activity."""
    return status.activity.partition(":")[0] if status.activity is not None else None
