"""`checkpointed-write clean`: remove what ended epochs have staged and nobody needs any more."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import Field

from checkpoint_control.views.inspected import Shown
from checkpoint_control.views.inspection import Inspector, open_existing
from checkpoint_control.writes.cleaning import CleanedEpoch, Cleaner, KeptEpoch
from checkpoint_local.cli import exits
from checkpoint_local.cli.exits import say_error
from checkpoint_local.cli.files import find_settings, load_settings
from checkpoint_local.cli.printing import answers, messages, plain_table, print_data, say_problem, size_text
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import ObjectStore

_DRY_RUN: Final = "nothing was removed (--dry-run)"


class ShownCleaned(Shown):
    """What was removed of an epoch, or would be."""

    write: str = Field(description="namespace/name, or the uid where the store does not say.")
    uid: str
    epoch: int
    objects: int = Field(description="Records and other objects of the checkpoint store.")
    object_bytes: int
    data_files: int = Field(description="Data files below the table's location that nothing names.")
    data_bytes: int


class ShownKept(Shown):
    """An epoch of which nothing was removed, and why."""

    write: str
    uid: str
    epoch: int
    why: str
    problem: str | None = Field(description="The reason, where something is wrong; null where it is as it should be.")


class ShownCleaning(Shown):
    """What `clean` did, or would do."""

    uri: str
    dry_run: bool
    cleaned: tuple[ShownCleaned, ...]
    kept: tuple[ShownKept, ...]


def clean_command(
    uri: str,
    settings_file: Path | None,
    output: str,
    write: str | None,
    older_than_s: float,
    dry_run: bool,
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
) -> int:
    """Clean the store and return the exit code: 1 if an epoch could not be judged, though all others are cleaned."""
    console = messages()
    try:
        settings = load_settings(find_settings(settings_file, None))
    except CheckpointError as error:
        say_error(error, console)
        return exits.MANIFEST_WRONG
    try:
        store = open_existing(uri, settings)
        if store is None:
            say_problem(console, f"error: there is no folder {uri}")
            return exits.FAILED
        found = _clean(store, settings, write, now() - datetime.timedelta(seconds=older_than_s), dry_run)
    except CheckpointError as error:
        say_error(error, console)
        return exits.code_of(error)
    if output == "table":
        _print(found)
    else:
        print_data(found, output)
    problems = [kept for kept in found.kept if kept.problem is not None]
    for kept in problems:
        say_problem(console, f"error: {kept.problem}: epoch {kept.epoch} of {kept.write} is kept: {kept.why}")
    return exits.FAILED if problems else exits.DONE


def _clean(store: ObjectStore, settings: Settings, only: str | None, before: datetime.datetime, dry_run: bool) -> ShownCleaning:
    cleaned: list[ShownCleaned] = []
    kept: list[ShownKept] = []
    cleaner = Cleaner(store, settings, before, dry_run)
    for uid, title in Inspector(store).find_writes(only).items():
        for done in cleaner.clean(uid):
            match done:
                case CleanedEpoch(key, objects, object_bytes, data_files, data_bytes):
                    cleaned.append(
                        ShownCleaned(
                            write=title,
                            uid=uid,
                            epoch=key.epoch,
                            objects=objects,
                            object_bytes=object_bytes,
                            data_files=data_files,
                            data_bytes=data_bytes,
                        )
                    )
                case KeptEpoch(key, why, problem):
                    kept.append(ShownKept(write=title, uid=uid, epoch=key.epoch, why=why, problem=problem))
    return ShownCleaning(uri=store.uri, dry_run=dry_run, cleaned=tuple(cleaned), kept=tuple(kept))


def _print(found: ShownCleaning) -> None:
    out = answers()
    table = plain_table("write", ">epoch", ">objects", ">size", ">data files", ">size", "")
    some = [epoch for epoch in found.cleaned if epoch.objects or epoch.data_files]
    for epoch in some:
        sizes = (size_text(epoch.object_bytes), str(epoch.data_files), size_text(epoch.data_bytes))
        table.add_row(epoch.write, str(epoch.epoch), str(epoch.objects), *sizes, "")
    for kept in found.kept:
        table.add_row(kept.write, str(kept.epoch), "", "", "", "", f"kept: {kept.why}")
    if table.row_count:
        out.print(table)
    objects, data_files = sum(epoch.objects for epoch in some), sum(epoch.data_files for epoch in some)
    size_bytes = sum(epoch.object_bytes + epoch.data_bytes for epoch in some)
    what = f"{counted(objects, 'object')} and {counted(data_files, 'data file')}, {size_text(size_bytes)}"
    out.print(f"would remove {what}; {_DRY_RUN}" if found.dry_run else f"removed {what}", markup=False)
