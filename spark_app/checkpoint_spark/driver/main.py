"""The driver of one attempt: fix the input, plan, run the tasks, end. It stages and seals; it never commits.

    python -m checkpoint_spark.driver.main --uri URI --uid UID --epoch N [--stage NAME] --attempt N
                                           --master MASTER --parallelism N

Ends with 0 when every task has its last seal, 1 when the attempt failed (why is in its failure record and on stderr), 3 when
another driver of the same attempt was first, or the attempt was closed for another one. Nobody needs the exit code: outcomes are
read from the store.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable, Superseded
from checkpoint_protocol.identity import EpochKey, new_token
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.progress_reports import Overwrite, StartedAs
from checkpoint_protocol.records import FailureRecord
from checkpoint_protocol.store.object_store import open_store
from checkpoint_spark.driver.spark_runner import KeptSpark, dataframes_by_spark, fast_start, frames_by_spark, run_tasks_with_spark
from checkpoint_spark.process.gpus import with_variables
from checkpoint_work.driver.attempt import SmallInput, run_attempt
from checkpoint_work.driver.waiting import Keep, await_next
from checkpoint_work.process.reporting import Activity, AtWork, telling
from checkpoint_work.process.settings import authenticated, log_traceback, loggable, masked, record_keys
from checkpoint_work.tasks.executor import storage_settings

# A driver whose attempt was closed ends by itself. Whoever closed it may be on another machine, and unable to end this process.
# No safety rests on that: it saves the work, and the resources of the attempt that follows.
_INTERVAL_S: Final = 10.0


def is_given_up(ledger: Ledger, attempt: int) -> bool:
    """Whether the attempt was closed before all was sealed. A record that cannot be read says nothing: it is read again."""
    try:
        closed = ledger.attempts.read_closed(attempt)
    except CheckpointError:
        return False
    # Closed because all is sealed, it ends on its own within a moment.
    return closed is not None and not closed.complete


@contextmanager
def ending_when_closed(at_work: AtWork, end: Callable[[str], None], interval_s: float = _INTERVAL_S) -> Iterator[None]:
    """Call `end` with the reason, once, from another thread, when the attempt at hand was given up while the body runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(interval_s):
            ledger, attempt = at_work.now
            if is_given_up(Ledger(ledger.store, ledger.key), attempt):
                end(f"attempt {attempt} of {ledger.key} was closed: another one does what it has not sealed; this driver ends")
                return

    threading.Thread(target=run, name="closed-watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


#: spark.task.maxFailures of a cluster; in a local master it is part of the name.
_TRIES: Final = 4
#: Of what proc(5) says after the name of the command.
_FIELD_OF_START: Final = 19
EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_SUPERSEDED: Final = 3


@dataclass(frozen=True, slots=True)
class Orders:
    """The command line."""

    uri: str
    key: EpochKey
    attempt: int
    master: str
    parallelism: int
    spark_conf: dict[str, str]
    ends_with_parent: bool
    small_input_bytes: int = 0
    small_input_cores: int = 1
    keep: Keep | None = None
    checkpoint_volume: Path | None = None


def main() -> int:
    orders = parse(sys.argv[1:])
    if orders.ends_with_parent:
        threading.Thread(target=end_with_parent, name="parent-watch", daemon=True).start()
    return drive(orders)


def say(text: str) -> None:
    """Say a line in the driver's log."""
    sys.stderr.write(f"{loggable(text)}\n")
    sys.stderr.flush()


#: Is told why a driver ends, also where no store can be reached.
Tell = Callable[[str | CheckpointError], None]


def words_of(said: str | CheckpointError) -> str:
    """Return in one line why a driver ends."""
    return said if isinstance(said, str) else f"{said.reason}: {said.message}"


def drive(orders: Orders, tell: Tell = lambda said: say(words_of(said))) -> int:
    """Do the attempt and return the exit code.

    With `keep`, the first attempts of the stages, or epochs, that follow, too, one after the other, as long as each goes well.
    """
    try:
        storage = storage_settings()
        store = open_store(orders.uri, storage)
        signed = authenticated(store, record_keys())
    except CheckpointError as error:
        tell(error)
        return EXIT_FAILED
    conf = fast_start(with_variables(orders.spark_conf, os.environ), os.environ)
    spark = KeptSpark(conf, is_kept=orders.keep is not None)
    started_as = StartedAs(epoch=orders.key.epoch, stage=orders.key.stage, attempt=orders.attempt)
    activity = Activity(age_s=_age_of_process_s)
    while True:
        ledger = Ledger(signed, orders.key)
        code = _drive_attempt(orders, ledger, storage, store.overwrite, spark, activity, tell)
        following = None
        if code == EXIT_DONE and orders.keep is not None:
            activity = replace(activity, phase="Waiting", started_as=started_as)
            with telling(store, store.overwrite, AtWork((ledger, orders.attempt)), activity):
                following = await_next(ledger, orders.attempt, orders.keep)
        if following is None:
            spark.stop()
            return code
        orders = replace(orders, key=following, attempt=1)
        activity = Activity(started_as=started_as, age_s=_age_from_now())


def _age_of_process_s() -> float:
    """Return how long ago this process was started, by Linux; 0 where the system does not tell."""
    try:
        began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_FIELD_OF_START])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK"))
    except OSError:
        return 0.0


def _age_from_now() -> Callable[[], float]:
    began = time.monotonic()
    return lambda: time.monotonic() - began


def _drive_attempt(
    orders: Orders,
    ledger: Ledger,
    storage: StorageSettings,
    overwrite: Overwrite,
    spark: KeptSpark,
    activity: Activity,
    tell: Tell,
) -> int:
    """Do one attempt and return the exit code."""
    at_work = AtWork((ledger, orders.attempt))
    try:
        application = f"checkpointed-write {orders.key}"
        run_tasks = run_tasks_with_spark(application, orders.master, spark, activity.enter)
        small = _for_small_input(orders, application, spark, activity)
        frames = dataframes_by_spark(application, orders.master, spark, activity.enter, at_work, orders.checkpoint_volume)
        open_frames = frames_by_spark(application, orders.master, spark)
        with (
            ending_when_closed(at_work, lambda why: _give_up(why, tell)),
            telling(ledger.store, overwrite, at_work, activity),
        ):
            run_attempt(ledger, orders.attempt, storage, orders.parallelism, run_tasks, frames, small, activity, open_frames)
    except Superseded as superseded:
        tell(superseded.message)
        return EXIT_SUPERSEDED
    except CheckpointError as error:
        tell(error)
        _leave_failure(*at_work.now, error)
        return EXIT_FAILED
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # Not foreseen: a defect of ours, or a library's. The whole of it goes to the log, the gist to the store.
        log_traceback(error)
        gist = f"the driver ended unexpectedly: {type(error).__name__}: {error}; the driver's log has the whole of it"
        _leave_failure(*at_work.now, Retryable(reasons.DRIVER_FAILED, gist))
        return EXIT_FAILED
    return EXIT_DONE


def _for_small_input(orders: Orders, application: str, spark: KeptSpark, activity: Activity) -> SmallInput | None:
    if not orders.small_input_bytes:
        return None
    run_tasks = run_tasks_with_spark(application, in_driver(orders.small_input_cores), spark, activity.enter)
    return SmallInput(run_tasks, orders.small_input_bytes)


def _give_up(why: str, tell: Tell) -> None:
    """End this process at once, whatever its main thread waits for. Java ends with it, as it holds a pipe of ours."""
    tell(why)
    os._exit(EXIT_SUPERSEDED)


def _leave_failure(ledger: Ledger, attempt: int, error: CheckpointError) -> None:
    try:
        message = masked(error.message)[:30_000]
        record = FailureRecord(token=new_token(), attempt=attempt, family=family_of(error), reason=error.reason, message=message)
        ledger.attempts.put_failure(record)
    except CheckpointError as second:
        say(f"the failure could not be recorded: {second.message}")


def family_of(error: CheckpointError) -> Literal["Retryable", "NeedsChange", "Corrupt"]:
    """Return the word for an error's family in a failure record."""
    if isinstance(error, NeedsChange):
        return "NeedsChange"
    return "Corrupt" if isinstance(error, Corrupt) else "Retryable"


def end_with_parent() -> None:
    """End this process when the one that started it is gone: its end of our standard input closes, even on kill -9."""
    try:
        while os.read(0, 1024):
            pass
    except OSError:
        pass
    os._exit(EXIT_FAILED)


def parse(arguments: list[str], master: str | None = None) -> Orders:
    """Read the command line; `master` is given where it is not said there."""
    parser = argparse.ArgumentParser(prog="checkpoint_spark.driver.main")
    parser.add_argument("--uri", required=True)
    parser.add_argument("--uid", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--stage", default="", metavar="NAME", help="the attempt is one of a stage of the epoch")
    parser.add_argument("--attempt", required=True, type=int)
    if master is None:
        parser.add_argument("--master", required=True)
    parser.add_argument("--parallelism", required=True, type=int)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--end-with-parent", action="store_true")
    parser.add_argument("--in-driver", type=int, metavar="CORES", help="run the tasks here, so many at once, without executors")
    parser.add_argument("--small-input", type=int, default=0, metavar="BYTES", help="do so where there is less input than this")
    parser.add_argument("--small-input-cores", type=int, default=1, metavar="CORES", help="so many at once then")
    parser.add_argument("--keep", type=float, default=0.0, metavar="SECONDS", help="wait for the next epoch for so long")
    parser.add_argument("--keep-stages", type=float, default=0.0, metavar="SECONDS", help="wait for the next stage for so long")
    parser.add_argument("--driver-digest", default="", metavar="SHA256", help="go on with launches for such drivers only")
    parser.add_argument("--checkpoint-volume", type=Path, metavar="FOLDER", help="keep Spark's own checkpoint of a stream there")
    parsed = parser.parse_args(arguments)
    return Orders(
        uri=parsed.uri,
        key=EpochKey(parsed.uid, parsed.epoch, parsed.stage),
        attempt=parsed.attempt,
        master=in_driver(parsed.in_driver) if parsed.in_driver is not None else master or parsed.master,
        parallelism=parsed.parallelism,
        spark_conf=dict(item.split("=", 1) for item in parsed.conf),
        ends_with_parent=parsed.end_with_parent,
        small_input_bytes=parsed.small_input,
        small_input_cores=parsed.small_input_cores,
        keep=Keep(parsed.driver_digest, parsed.keep, parsed.keep_stages) if parsed.keep or parsed.keep_stages else None,
        checkpoint_volume=parsed.checkpoint_volume,
    )


def in_driver(cores: int) -> str:
    """Return the Spark master that runs tasks in this process, and tries each again that fails, as executors do."""
    return f"local[{cores},{_TRIES}]"


if __name__ == "__main__":
    sys.exit(main())
