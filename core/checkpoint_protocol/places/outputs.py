"""Where a write puts its files: a source that leads there would read what the write has written, as if it were input.

Asked three times: by `validate`; before an attempt is recorded, of what the paths say; and by the driver, of the files that it
has found, since a link or a pattern may lead where no path says it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.patterns import split
from checkpoint_protocol.places.source_paths import Location, identity_of, locate
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Output, Target


def checkpoint_output(uri: str) -> Output:
    staged = "staged/uid/1"
    samples = ("control/uid/write.json", f"{staged}/input.json", f"{staged}/1/seals/0/0.json", f"{staged}/1/keys/0-0.parquet")
    return Output("the checkpoint store", uri, samples)


def outputs_of(target: Target | None, checkpoint_uri: str) -> tuple[Output, ...]:
    """Return the places that a write puts files to, but those of a table that is yet to be made."""
    return (*(target.outputs if target is not None else ()), checkpoint_output(checkpoint_uri))


def find_path_into(outputs: Sequence[Output], paths: Iterable[str]) -> tuple[str, Output] | None:
    """Return a path of a source that may find files of an output, and that output.

    A folder does if it holds the output, unless under a name that it passes over (`_x`, `.x`), or lies in it; a pattern if it
    takes names such as the output's files have.
    """
    for path in paths:
        for output in outputs:
            if _leads_into(path, output):
                return path, output
    return None


def find_file_in(outputs: Sequence[Output], files: Iterable[str]) -> tuple[str, Output] | None:
    """Return a file that lies in an output, also through a link, and that output."""
    places = [(place, output) for output in outputs if (place := _place(output.uri)) is not None]
    folders = _Folders()
    for path in files:
        here = folders.place_of(locate(path))
        for place, output in places:
            if _is_below(here, place):
                return path, output
    return None


def is_one_place(one: str, other: str) -> bool:
    """Whether two URIs of folders mean the same one, as far as can be told."""
    place = _place(one)
    return one.rstrip("/") == other.rstrip("/") or (place is not None and place == _place(other))


def refuse(found: tuple[str, Output] | None) -> None:
    """Raise NeedsChange(ManifestInvalid) if something was found."""
    if found is not None:
        path, output = found
        raise NeedsChange(
            reasons.MANIFEST_INVALID,
            f"source: {path} leads into {output.title} ({output.uri}): what the write puts there would be read as its input; "
            "let each have a folder of its own",
        )


def _leads_into(path: str, output: Output) -> bool:
    location, place = _located(path), _place(output.uri)
    if location is None or place is None:
        return False
    folder, pattern = split(location.key)
    here = _resolved(location.at(folder))
    if _is_below(here, place):
        return True
    if not _is_below(place, here):
        return False
    names = place[1].removeprefix(here[1]).strip("/").split("/")
    return any(pattern.matches([*names, *sample.split("/")]) for sample in output.samples)


#: Which disk or bucket, and the path in it, without a slash at its end.
_Place = tuple[str, str]


def _is_below(place: _Place, other: _Place) -> bool:
    return place[0] == other[0] and f"{place[1]}/".startswith(f"{other[1]}/" if other[1] else "")


def _located(uri: str) -> Location | None:
    """None for what is neither on disk nor in a bucket."""
    try:
        return locate(uri)
    except NeedsChange:
        return None


def _place(uri: str) -> _Place | None:
    location = _located(uri.rstrip("/") or "/")
    return None if location is None else _resolved(location)


def _resolved(location: Location) -> _Place:
    if not location.root:
        return "", os.path.realpath(location.key or "/").rstrip("/")
    # Whatever the endpoint is: what looks like one bucket is better refused than read.
    return identity_of(location.at(""), StorageSettings()), location.key.rstrip("/")


@dataclass(slots=True)
class _Folders:
    """Resolves files, each folder of them only once: a source may have a million, and of most no name is a link."""

    _places: dict[str, str] = field(default_factory=dict)
    _links: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def place_of(self, location: Location) -> _Place:
        if location.root:
            if location.root not in self._places:
                self._places[location.root] = _resolved(location.at(""))[0]
            return self._places[location.root], location.key
        folder, _, name = location.key.rpartition("/")
        if folder not in self._places:
            self._places[folder] = os.path.realpath(folder or "/").rstrip("/")
            self._links[folder] = _links_in(folder or "/")
        links = self._links[folder]
        if os.path.islink(location.key) if links is None else name in links:
            return _resolved(location)
        return "", f"{self._places[folder]}/{name}"


def _links_in(folder: str) -> frozenset[str] | None:
    """Return the names of the links in a folder, from one listing; None for one that cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_symlink())
    except OSError:
        return None
