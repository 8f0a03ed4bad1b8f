"""What the loop needs of the world: the place where drivers run, drivers (pods or processes),
and the write as its manifest says it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from checkpoint_control.decision.attempt_clock import Noted
from checkpoint_control.decision.observation import DriverObservation, Failure
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.records import LaunchRecord, StageIdentity


class Drivers(Protocol):
    """What starts and ends drivers: processes or pods."""

    def observe(self, key: EpochKey, attempt: int) -> DriverObservation:
        """Return what is known of an attempt's driver. A driver that may still run but is not ours is GONE."""

    def expect(self, key: EpochKey, attempt: int) -> None:
        """Note that this process has recorded the attempt, so that its driver is yet to be started."""

    def start(self, key: EpochKey, launch: LaunchRecord) -> None:
        """Start the driver of a recorded attempt. Starting a second one is harmless: it ends before any task."""

    def stop(self, key: EpochKey, attempt: int) -> None:
        """Ask the driver to end, and do not wait for it. It may go on as a zombie."""


class Host(Protocol):
    """The place where drivers run, a cluster or one machine, and what is decided there for one write."""

    @property
    def recorder(self) -> str:
        """Name the machine that records attempts: the drivers of others cannot be seen from here. Empty where all can."""

    @property
    def driver_digest(self) -> str | None:
        """The digest of what drivers that may do the next stage, or epoch, too are started with; None: they are not to wait."""

    def clock(self) -> float:
        """Return the seconds since some moment."""

    def renew(self, write: Write) -> Write:
        """Return the write with its code as it is now. Asked wherever a new attempt may depend on that."""

    def forgive(self, attempts: list[int]) -> int:
        """Return the last attempt whose failure no longer counts, of those that an epoch has when it is first observed."""

    def noted(self, key: EpochKey, attempt: int) -> Noted:
        """Return what an earlier process has noted of an attempt, as far as this one can know it."""

    def is_past_deadline(self, epoch: int) -> bool:
        """Whether this epoch has taken longer than its manifest allows."""

    def pause_after(self, failures: int) -> float:
        """Return the seconds between an attempt and the next, after so many in a row that sealed nothing."""

    def retry_after(self, failures: int) -> float:
        """Return the same where the last attempt waits for something outside of the manifest; infinite: a person tries again."""

    def queue_for_a_place(self) -> int | None:
        """Return how many writes come before this one, where its driver has to wait for a place; None if it has one."""

    def count_starved(self) -> int:
        """Return how many drivers beside this one have no executor, where they could take each other's places."""

    def find_starvation(self, key: EpochKey, attempt: int, has_plan: bool) -> Failure | None:
        """Return what keeps all executors of an attempt's driver from running, if anything does."""


@dataclass(frozen=True, slots=True)
class Write:
    """Who is written, as the manifest says now."""

    uid: str
    spec: Spec
    code_digest: str
    #: The digest of the archive in the store that the next attempt is recorded with; None: there is none.
    code: str | None = None
    #: See LaunchRecord.
    row_keys: str = ""
    #: See Stage.
    audit: str | None = None
    #: Which stage of a pipeline is done; None where there are no stages, or it is not known yet which of them is next.
    stage: StageIdentity | None = None

    @property
    def awaits_stages(self) -> bool:
        """Whether it is not known yet which stages are done."""
        return bool(self.spec.stages) and self.stage is None
