"""What has changed since a write was committed: new input, and edits of its manifest and code. For people; changes nothing."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from checkpoint_control.decision.triggers import News
from checkpoint_control.loop.looks import Looks, open_news
from checkpoint_control.pipelines.decisions import IN_WORDS
from checkpoint_control.pipelines.results import DigestOf, decide
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.tables import OVERWRITING


@dataclass(frozen=True, slots=True)
class SinceCommit:
    """`new_items`: files, fragments or snapshots that no epoch has taken; None where only a driver can tell.

    `edits`: what rows of the next epoch would be made with, and those of this one were not, in words.
    """

    new_items: int | None
    edits: tuple[str, ...] = ()


def has_more(ledger: Ledger, spec: Spec, settings: Settings, now: Callable[[], datetime.datetime]) -> bool:
    """Whether an epoch after this one, which is committed, may have any rows."""
    if spec.sink.mode in OVERWRITING or spec.quarantine.retry != "Never":
        return True
    return _news(ledger, spec, settings, now).is_any


def _news(ledger: Ledger, spec: Spec, settings: Settings, now: Callable[[], datetime.datetime]) -> News:
    return Looks(spec, open_news(spec, settings), now, is_asked=True).news_since(ledger)


def since_commit(
    ledger: Ledger, spec: Spec, settings: Settings, digest_of: DigestOf, now: Callable[[], datetime.datetime]
) -> SinceCommit:
    """Compare what an epoch, which is committed, was made of with what there is now. Raises CheckpointError as reading does."""
    news = _news(ledger, spec, settings, now)
    new_items = news.files if news.counted else None
    commit = ledger.commits.read_commit()
    launch = ledger.attempts.read_launch(commit.attempts) if commit is not None else None
    if launch is None:
        return SinceCommit(new_items)
    place = "the steps of the last stage" if spec.stages else "spec.steps"
    before, steps = ([_plain(one) for one in steps] for steps in (launch.steps, spec.last_part.steps))
    fields = [*_differences("spec.source", _plain(launch.source), _plain(spec.source)), *_differences(place, before, steps)]
    edits = [f"{field} has changed" for field in fields]
    same = spec if spec.stages else spec.model_copy(update={"steps": launch.steps})
    if digest_of(same) != launch.code_digest and not (spec.stages and fields):
        edits.append("the code of the steps has changed" if not spec.stages else "the code of the last stage has changed")
    for stage in decide(ledger, spec, digest_of)[:-1] if spec.stages else ():
        if stage.what == "redo" and stage.because != ("upstream",):
            edits.append(f"the stage {stage.name}: {'; '.join(IN_WORDS[cause] for cause in stage.because)}")
    return SinceCommit(new_items, tuple(edits))


def said_of(since: SinceCommit, spec: Spec, file: Path) -> list[str]:
    """Return lines on what has changed, and on how to go on."""
    changed = [*([counted(since.new_items, "new file")] if since.new_items else []), *since.edits]
    again = f"checkpointed-write run {file} --again"
    if spec.sink.mode in OVERWRITING:
        then = f"{again} reads the whole source again, and replaces what is in the table"
    elif since.new_items is None:
        then = f"{again} takes what is new, if there is anything"
    elif since.new_items:
        then = f"{again} takes what is new" + (", with the steps as they are now" if since.edits else "")
    elif since.edits:
        then = "rows that are committed stay as they are; an edit counts for new input, or for a write with another metadata.name"
    else:
        then = f"nothing is new since; {again} takes what comes later"
    return [*([f"since then: {'; '.join(changed)}"] if changed else []), then]


def _plain(model: object) -> JsonValue:
    return model.model_dump(mode="json", by_alias=True)  # type: ignore[attr-defined,no-any-return]


def _differences(place: str, before: JsonValue, now: JsonValue) -> Iterator[str]:
    """Give the places of values that are not the same, as deep as both are mappings, or lists of one length."""
    match before, now:
        case (dict(), dict()):
            for name in sorted(before.keys() | now.keys()):
                yield from _differences(f"{place}.{name}", before.get(name), now.get(name))
        case (list(), list()) if len(before) == len(now):
            for number, (one, other) in enumerate(zip(before, now, strict=True)):
                yield from _differences(f"{place}.{number}", one, other)
        case _ if before != now:
            yield place
        case _:
            pass
