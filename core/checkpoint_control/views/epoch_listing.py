"""What the names of an epoch's objects tell: its attempts, its seals, and which objects are records at all. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from checkpoint_protocol.identity import is_stage
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.layout import EpochLayout

#: A task and the number of its seal.
Link = tuple[int, int]


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text)) and text != "0"


def divided(at: EpochLayout, paths: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Divide the objects of an epoch into its own, and those of each of its stages by name."""
    own: list[str] = []
    of_stages: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        name = layout.stage_of(path, at.stages) or layout.stage_of(path, f"{at.staged}/stages/")
        if name is not None and is_stage(name):
            of_stages[name].append(path)
        else:
            own.append(path)
    return own, of_stages


def attempts_in(at: EpochLayout, paths: Iterable[str]) -> tuple[list[int], set[int]]:
    """Return the attempts that have any record, and those that have a launch record."""
    launched, others = set(), set()
    for path in paths:
        if number := layout.number_of(path, at.launches):
            launched.add(number)
        elif number := layout.number_of(path, at.closings):
            others.add(number)
        elif path.startswith(f"{at.staged}/"):
            head, separator, _ = path.removeprefix(f"{at.staged}/").partition("/")
            if separator and is_number(head):
                others.add(int(head))
    return sorted(launched | others), launched


def seals_in(at: EpochLayout, numbers: Iterable[int], paths: Iterable[str]) -> dict[int, set[Link]]:
    seals: dict[int, set[Link]] = {number: set() for number in numbers}
    for path in paths:
        head = path.removeprefix(f"{at.staged}/").partition("/")[0]
        if is_number(head) and (place := layout.seal_of(path, at.seals(int(head)))) is not None:
            seals[int(head)].add(place)
    return seals


def records_of(
    at: EpochLayout, numbers: Collection[int], claims: Iterable[int], seals: dict[int, set[Link]], listed: Sequence[str]
) -> set[str]:
    """Return every path of the epoch that is a record's, or that holds what records name."""
    kinds = (at.launch, at.target, at.closed, at.plan, at.output, at.failure, at.input_since, at.progress)
    paths = {at.input, at.deleted, at.cleaned, at.commit_record, *(at.claim(index) for index in claims)}
    paths |= {path_of(number) for number in numbers for path_of in kinds}
    paths |= {path for path in listed for number in numbers if layout.number_of(path, at.works(number)) is not None}
    paths |= {path for path in listed for number in numbers if layout.memo_of(path, at.memos(number)) is not None}
    paths |= {path for path in listed for number in numbers if layout.is_quarantine(path, at.quarantines(number))}
    paths |= {path for path in listed if layout.is_rows_object(path, at.rows) or layout.is_merge_keys(path, at)}
    # Named or not: a driver that died, or whose record did not win, leaves parts that nobody reads.
    folders = (at.input_parts, *(at.plan_parts(number) for number in numbers))
    paths |= {path for path in listed if any(layout.is_part(path, folder) for folder in folders)}
    paths |= {path for path in listed if any(layout.bundle_of(path, at.seals(number)) is not None for number in numbers)}
    return paths | {at.seal(number, *place) for number, places in seals.items() for place in places}


def gap_free_lengths(found: Iterable[Link]) -> dict[int, int]:
    links: dict[int, set[int]] = defaultdict(set)
    for task, link in found:
        links[task].add(link)
    return {task: next(n for n in range(len(seen) + 1) if n not in seen) for task, seen in links.items()}
