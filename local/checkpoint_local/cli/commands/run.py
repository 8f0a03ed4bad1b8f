"""`checkpointed-write run`: drive a write on this machine, show how far it is, and say how it ended."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from checkpoint_commit.sinks.registry import format_of
from checkpoint_control.decision.actions import (
    BeginStage,
    Close,
    Commit,
    Finish,
    OpenEpoch,
    RecordAttempt,
    Stall,
    StartDriver,
    Wait,
)
from checkpoint_control.decision.code_changes import Choice
from checkpoint_control.decision.observation import DriverState
from checkpoint_control.decision.rules import progress_deadline_s
from checkpoint_control.loop.reconcile import Round
from checkpoint_control.pipelines.decisions import Decision, title_of
from checkpoint_control.pipelines.decisions import said_of as said_of_stage
from checkpoint_control.progress.epoch_progress import Progress as Counts
from checkpoint_control.progress.epoch_progress import TimeLeft, describe, how_far, is_running, share_of, time_text
from checkpoint_local.cli import committed, exits
from checkpoint_local.cli.exits import read_files, say_error
from checkpoint_local.cli.notebook_bar import NotebookBar
from checkpoint_local.cli.printing import BAR_COLUMNS, BAR_FROM_WIDTH, TIME_COLUMNS, answers, messages, progress_line
from checkpoint_local.java import notice
from checkpoint_local.lock import Holder
from checkpoint_local.other_processes import State
from checkpoint_local.runner import Report, Rival, Runner, state_folder
from checkpoint_local.since_commit import said_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import CheckpointedWrite
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.records import CommitRecord
from checkpoint_protocol.store.object_store import translate_store_error

_PLAIN_EVERY_S: Final = 10.0
_RATE_OVER_S: Final = 15.0
#: What passes by itself within a moment is not told.
_SAID_AFTER_S: Final = 5.0


def run_command(
    file: Path,
    settings_file: Path | None,
    cores: int | None,
    *,
    watch: bool = False,
    approve: Choice | None = None,
    again: bool = False,
) -> int:
    """Run the write and return the exit code."""
    console = messages()
    if (files := read_files(file, settings_file, console)) is None:
        return exits.MANIFEST_WRONG
    manifest, settings = files
    if watch and manifest.spec.trigger is None:
        console.print("error: --watch goes by spec.trigger, and there is none; say every or cron there", style="red")
        return exits.MANIFEST_WRONG
    committed.say_former(manifest, settings, console)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        ran = run_write(manifest, settings, cores, console, watch=watch, approve=approve, again=again)
    except KeyboardInterrupt:
        console.print(f"interrupted; what is sealed stays: checkpointed-write run {file} resumes it")
        return exits.INTERRUPTED
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    return _conclude(console, ran, file)


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that came to an end: `ended` is its last round, whose outcome is Finish or Stall."""

    runner: Runner
    ended: Round
    display: Display
    elapsed_s: float


def run_write(
    manifest: CheckpointedWrite,
    settings: Settings,
    cores: int | None,
    console: Console,
    *,
    watch: bool = False,
    approve: Choice | None = None,
    again: bool = False,
) -> Ran:
    """Run a write to its end, and show how far it is. `again`: begin the next epoch where the last one is committed.
    Raises CheckpointError where nothing can be done from here."""
    if approve is not None and (policy := manifest.spec.on_code_change) != "Ask":
        raise NeedsChange(reasons.MANIFEST_INVALID, f"spec.onCodeChange: it is {policy}, so that nothing is to be approved")
    if (said := notice(os.environ)) is not None:
        console.print(said, style="yellow", markup=False, soft_wrap=True)
    started = time.monotonic()
    with Display(console, manifest) as display:
        runner = Runner(
            manifest, settings, cores or os.cpu_count() or 1, display.report, watch=watch, approve=approve, again=again
        )
        try:
            ended = runner.run()
        except OSError as error:
            # Store, table and source have errors of their own: what is left is what this process itself keeps.
            raise _of_state_folder(error) from error
    return Ran(runner, ended, display, time.monotonic() - started)


def _of_state_folder(error: OSError) -> CheckpointError:
    place = (
        f"{error.filename or state_folder()} (in the folder for logs and locks, {state_folder()}; XDG_STATE_HOME sets another)"
    )
    return translate_store_error(error, place)


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@dataclass(slots=True)
class Display:
    """A live bar on a terminal and in a notebook; a line now and then elsewhere."""

    console: Console
    manifest: CheckpointedWrite
    counts: Counts | None = None
    did_work: bool = False
    #: Rows that were sealed when it was decided what becomes of them, and are kept.
    rows_before: int | None = None
    _bar: Progress | NotebookBar | None = None
    _task: TaskID | None = None
    _started: float = field(default_factory=time.monotonic)
    _last_plain: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)
    _said_of_rival: tuple[Holder | None, State] | None = None
    #: Attempts have numbers of their own in each epoch and stage.
    _said_elsewhere: tuple[EpochKey, int] | None = None
    _said_failure_of: tuple[EpochKey, int] | None = None
    _said_of_last_stage: tuple[EpochKey, Decision] | None = None
    _time_left: TimeLeft = field(default_factory=TimeLeft)
    _said_quarantined: bool = False
    _sealed_at_first: int | None = None

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            bar = [BarColumn(BAR_COLUMNS)] if self.console.width >= BAR_FROM_WIDTH else []
            self._bar = Progress(
                TextColumn("{task.description}"), *bar, TimeElapsedColumn(), console=self.console, transient=True
            )
            self._bar.start()
        elif self.console.is_jupyter:
            self._bar = NotebookBar()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def report(self, report: Report) -> None:
        if report.problem is not None:
            self.console.print(f"trying again: {report.problem}", style="yellow", markup=False, soft_wrap=True)
            return
        if report.attached:
            self._tell_of_rival(report.rival)
        counts = report.progress
        is_over = report.round is not None and isinstance(report.round.outcome, Finish)
        if self._sealed_at_first is None:
            self._sealed_at_first = counts.rows_read
        if self.rows_before is None and not is_over and _is_kept(report):
            self._tell_of_kept(counts.rows_read, self._sealed_at_first)
        if counts.rows_failed and not is_over and not self._said_quarantined:
            self._said_quarantined = True
            self.console.print("rows fail and are quarantined; the others go on", style="yellow")
        self.counts = counts
        if report.round is not None:
            self._tell(report.round)
        self._show(counts)

    def _tell_of_kept(self, kept: int, sealed: int) -> None:
        """Say which sealed rows are not computed again, once that is decided."""
        self.rows_before = kept
        if kept < sealed:
            others = "others are of other code, or were read with other options, and are computed again"
            self.console.print(
                f"resuming: {kept:,} of {counted(sealed, 'sealed row')} {'is' if kept == 1 else 'are'} kept; the {others}"
            )
        elif kept:
            rows = counted(kept, "row is", "rows are")
            self.console.print(f"resuming: {rows} sealed already and will not be computed again")

    def _tell_of_rival(self, rival: Rival | None) -> None:
        """Say who holds the write, and again when it is stopped or goes on."""
        state = rival.state if rival is not None else "unknown"
        now = (rival.holder if rival is not None else None, state)
        if now == self._said_of_rival or (rival is None and self._said_of_rival is not None):
            return
        self._said_of_rival = now
        who = ""
        if rival is not None:
            who = f" (process {rival.holder.pid} on {rival.holder.host}, since {rival.holder.since})"
        if rival is not None and rival.passed_over_in_s is not None:
            how = (
                f"is stopped (Ctrl-Z, SIGSTOP); kill -CONT {rival.holder.pid} lets it go on" if state == "stopped" else "is gone"
            )
            text = f"the run that holds this write{who} {how}; this one takes over in {max(0.0, rival.passed_over_in_s):.0f} s"
        else:
            text = f"another run of this write is at work on this machine{who}; watching it, and taking over if it ends"
        self.console.print(text, style="yellow" if state in ("stopped", "gone") else None, markup=False, soft_wrap=True)

    def _tell_of_another_machine(self, done: Round) -> None:
        last = done.seen.last
        if last is None or (done.key, last.number) == self._said_elsewhere or last.driver is not DriverState.ELSEWHERE:
            return
        if isinstance(done.actions[-1], Wait) and last.idle_s >= _SAID_AFTER_S:
            self._said_elsewhere = done.key, last.number
            self.console.print(
                f"another machine has started the driver of attempt {last.number}: it is given up when it has sealed nothing for "
                f"{progress_deadline_s(done.seen):,.0f} s (progressDeadlineSeconds)",
                markup=False,
                soft_wrap=True,
            )

    def _tell(self, done: Round) -> None:
        self._tell_of_another_machine(done)
        for note in done.notes:
            self.console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)
        for action in done.actions:
            match action:
                case BeginStage() | Commit() if self.manifest.spec.source.stream is not None:
                    pass  # there are many: the round after its commit says it of each micro-batch
                case BeginStage(folder, is_before=True):
                    self._tell_stage(next(one for one in done.stages if one.folder == folder))
                case BeginStage(name):
                    self.console.print(f"all rows are sealed; the commit needs the stage {name}")
                case Commit() if done.key.stage:
                    self.console.print(f"the stage {title_of(done.key.stage)} is done")
                case Close(attempt, why, is_done=False):
                    self.console.print(f"attempt {attempt} is closed: {why}")
                case RecordAttempt() if (last := done.seen.last) is not None and last.failure is not None:
                    self._tell_failure(done.key, last.number, last.failure.message)
                case Wait(_, problem) if (last := done.seen.last) is not None and last.failure is not None:
                    if problem is last.failure:
                        self._tell_failure(done.key, last.number, last.failure.message, "; the next attempt begins after a pause")
                case Commit():
                    self.console.print("all rows are sealed: committed")
                case _:
                    pass
            if isinstance(action, OpenEpoch) and done.seen.is_stream and done.commit is not None:
                self.console.print(f"epoch {done.seen.epoch} is committed: {counted(done.commit.rows_written, 'row')}")
            if isinstance(action, OpenEpoch) and action.news is not None:
                self._tell_epoch(done, action)
            if isinstance(action, RecordAttempt) and done.stages and not done.key.stage:
                self._tell_last_stage(done.key, done.stages[-1])
            if isinstance(action, RecordAttempt) and action.attempt > 1:
                of_stage = f" of stage {title_of(done.key.stage)}" if done.key.stage else ""
                self.console.print(f"attempt {action.attempt}{of_stage} begins")
            if isinstance(action, RecordAttempt | StartDriver | Commit | Close):
                self.did_work = True

    def _tell_last_stage(self, key: EpochKey, last: Decision) -> None:
        """Say once what becomes of the stage that the table gets its rows from: it has attempts only."""
        if last.what != "continue" and (key, last) != self._said_of_last_stage:
            self._said_of_last_stage = key, last
            self._tell_stage(last)

    def _tell_stage(self, stage: Decision) -> None:
        self.console.print(said_of_stage(stage), markup=False, soft_wrap=True)

    def _tell_epoch(self, done: Round, opened: OpenEpoch) -> None:
        """Say for what an epoch begins: what it takes its driver finds out."""
        commit, news = done.commit, opened.news
        if commit is not None:
            self.console.print(f"epoch {done.seen.epoch} is committed: {counted(commit.rows_written, 'row')}")
        due = "its trigger is due" if self.manifest.spec.trigger is not None else "--again asks for it"
        found = counted(news.files, "new file") if news is not None and news.counted else due
        self.console.print(f"epoch {opened.epoch} begins: {found}")
        self.rows_before, self._said_quarantined = None, False
        self._recent.clear()

    def _tell_failure(self, key: EpochKey, attempt: int, message: str, what_follows: str = "") -> None:
        """Say once why an attempt ended: as soon as it is known, also where the next one does not begin at once."""
        if (key, attempt) != self._said_failure_of:
            self._said_failure_of = key, attempt
            self.console.print(f"attempt {attempt} said: {message}{what_follows}", markup=False, soft_wrap=True)

    def _show(self, counts: Counts) -> None:
        elapsed = time.monotonic() - self._started
        rate = self._rows_per_second(elapsed, counts.rows_read + counts.rows_in_hand)
        phase = _phase(counts, self._time_left.measure(elapsed, counts))
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("starting", total=None)
            room = self.console.width - TIME_COLUMNS - (BAR_COLUMNS + 1 if self.console.width >= BAR_FROM_WIDTH else 0)
            line = progress_line(counts, self.manifest.metadata.name, phase, rate, room)
            self._bar.update(self._task, description=line, total=counts.tasks, completed=counts.tasks_done)
        elif elapsed - self._last_plain >= _PLAIN_EVERY_S:
            self._last_plain = elapsed
            tasks = f"{counts.tasks_done}/{counts.tasks or '?'} tasks"
            rows = f"{counted(counts.rows_read, 'row')} sealed, {rate:,.0f} rows/s"
            self.console.print(f"attempt {counts.attempt}{phase}: {tasks}, {rows}")

    def _rows_per_second(self, elapsed: float, rows: int) -> float:
        """Return the rate over the last seconds: starting Spark is no part of it."""
        self._recent.append((elapsed, rows))
        while elapsed - self._recent[0][0] > _RATE_OVER_S and len(self._recent) > 2:
            self._recent.popleft()
        first_elapsed, first_rows = self._recent[0]
        return (rows - first_rows) / max(elapsed - first_elapsed, 1e-6) if rows > first_rows else 0.0


def _is_kept(report: Report) -> bool:
    """Whether it is decided that what is sealed now stays: an attempt that takes it over is recorded, or at work."""
    if report.round is None:
        return report.attached
    last = report.round.seen.last
    if any(isinstance(action, RecordAttempt | StartDriver | Commit) for action in report.round.actions):
        return True
    return isinstance(report.round.actions[-1], Wait) and last is not None and not last.is_closed


def _phase(counts: Counts, left_s: float | None) -> str:
    """Say what the driver is at, or how far its tasks are beyond what is sealed."""
    if counts.tasks is not None and counts.tasks_done == counts.tasks:
        return ""
    if not is_running(counts):
        return f" ({describe(counts)})"
    share = share_of(counts)
    told = [f"{how_far(counts)}, {share:.0%}"] if share is not None else []
    if counts.rows_in_hand:
        told.append(f"{counted(counts.rows_in_hand, 'row')} not sealed yet")
    if counts.calls_in_flight:
        told.append(f"{counted(counts.calls_in_flight, 'call')} in flight")
    if counts.tries_again:
        told.append(f"{counted(counts.tries_again, 'call')} made again")
    if left_s is not None:
        told.append(f"about {time_text(left_s)} left")
    return f" ({', '.join(told)})" if told else ""


def _conclude(console: Console, ran: Ran, file: Path) -> int:
    runner, ended = ran.runner, ran.ended
    match ended.outcome:
        case Stall(reason, message) as stalled:
            console.print(exits.line_of(reason, message), style="red", markup=False, soft_wrap=True)
            if reason == reasons.CODE_CHANGED:
                what = "approve the code as it is now"
                console.print(
                    f"{what}: checkpointed-write run {file} --approve Continue (or Restart)", markup=False, soft_wrap=True
                )
                return exits.code_of_end(stalled)
            last = ended.seen.last
            if last is not None:
                log = runner.drivers.log_of(*(last.place or (ended.key, last.number)))
                if log.exists():
                    console.print(f"the log of the last driver: {log}", markup=False, soft_wrap=True)
            return exits.code_of_end(stalled)
        case _:
            found = ended.last_commit
            if found is None:
                answers().print("up to date: the stream has had no rows by now")
                return exits.COMMITTED
            commit_record = found[1]
            commit = committed.recorded(*found)
            presence = committed.find_presence(commit, runner.manifest.spec.sink, runner.settings, console)
            if committed.say(presence, commit, file, console):
                return exits.FAILED
            _summarise(answers(), ran, commit_record, file)
            if not ran.display.did_work:
                _say_what_has_changed(console, ran, file)
            return exits.COMMITTED


def _say_what_has_changed(console: Console, ran: Ran, file: Path) -> None:
    """Say of a write that was committed before what is new, and how to go on."""
    runner, spec = ran.runner, ran.runner.manifest.spec
    if spec.trigger is not None or spec.source.stream is not None:
        return  # a run takes what is new
    try:
        lines = said_of(runner.since_commit(), spec, file)
    except CheckpointError as error:
        lines = [f"what has changed since cannot be told: {error.message}"]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def ended_as_stream(ended: Round) -> bool:
    """Whether the run has ended as its stream had no more rows."""
    return ended.seen.is_stream and ended.seen.commit is None


def _summarise(out: Console, ran: Ran, commit_record: CommitRecord, file: Path) -> None:
    runner, display = ran.runner, ran.display
    sink = format_of(runner.manifest.spec.sink)
    if not display.did_work:
        out.print(
            f"already committed: {commit_record.target} has {counted(commit_record.rows_written, 'row')} of {commit_record.key}",
            markup=False,
        )
    elif ended_as_stream(ran.ended):
        out.print(f"up to date: all that the stream had is in {commit_record.target}; of the last epoch:", markup=False)
    else:
        out.print(f"committed {counted(commit_record.rows_written, 'row')} to {commit_record.target}", markup=False)
    spec = runner.manifest.spec
    by_stage, of_stage = (f" {word} the stage {spec.last_part.name}" if spec.stages else "" for word in ("by", "of"))
    rows = [
        ("rows", f"{commit_record.rows_read:,} read{by_stage}, {commit_record.rows_written:,} written"),
        ("files", f"{commit_record.files:,}"),
        (
            sink.version_word,
            "none: there was nothing to commit" if commit_record.commit_id is None else str(commit_record.commit_id),
        ),
        ("key", commit_record.key),
        ("attempts", f"{commit_record.attempts}{of_stage}"),
        ("time", f"{ran.elapsed_s:.1f} s"),
    ]
    if display.did_work and display.rows_before:
        files = display.counts.input_files_done if display.counts else 0
        skipped = counted(files, "input file that was done was", "input files that were done were")
        opened = f"; {skipped} not opened" if files else ""
        kept = counted(display.rows_before, "row was sealed before and was", "rows were sealed before and were")
        rows.append(("resumed", f"{kept} not computed again{opened}"))
    if commit_record.rows_failed:
        listed = f"checkpointed-write failed {file} lists them"
        how = listed if spec.stages else f"checkpointed-write failed {file} lists them, quarantine.retry takes them again"
        failed = counted(commit_record.rows_failed, "row is", "rows are")
        rows.append(("failed", f"{failed} quarantined, and not in the table: {how}"))
    if len(commit_record.read_digests) > 1:
        rows.append(("text", f"read under {len(commit_record.read_digests)} settings (how text is read was edited)"))
    if len(commit_record.code_digests) > 1:
        rows.append(
            ("code", f"results of {len(commit_record.code_digests)} versions of the code are mixed (onCodeChange: Continue)")
        )
    for name, value in rows:
        out.print(f"  {name:<9} {value}", markup=False)
    hint = sink.how_to_read(runner.settings)
    if hint is not None and commit_record.commit_id is None and sink.examine(runner.settings).exists is False:
        out.print("no table yet: which columns the steps give is not known without rows; the first epoch that has some makes it")
    elif hint is not None:
        out.print(f"show rows: {hint}", markup=False)
