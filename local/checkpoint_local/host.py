"""What one machine decides for the write that is run on it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from checkpoint_control.decision.attempt_clock import Noted
from checkpoint_control.decision.observation import Failure
from checkpoint_control.ports import Write
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import Spec


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Implements Host for one run. A person waits for it: nothing is queued, or put off, and each run is a new try.

    `digest_of`: of the code of a manifest, as it is now; None: a run has the code that it began with.
    """

    recorder: str = ""
    driver_digest: str | None = None
    digest_of: Callable[[Spec], str] | None = None
    clock: Callable[[], float] = time.monotonic

    def renew(self, write: Write) -> Write:
        return write if self.digest_of is None else replace(write, code_digest=self.digest_of(write.spec))

    def forgive(self, attempts: list[int]) -> int:
        return attempts[-1] if attempts else 0

    def noted(self, key: EpochKey, attempt: int) -> Noted:
        return Noted()

    def is_past_deadline(self, epoch: int) -> bool:
        return False

    def pause_after(self, failures: int) -> float:
        return 0.0

    def retry_after(self, failures: int) -> float:
        return math.inf

    def queue_for_a_place(self) -> int | None:
        return None

    def count_starved(self) -> int:
        return 0

    def find_starvation(self, key: EpochKey, attempt: int, has_plan: bool) -> Failure | None:
        return None
