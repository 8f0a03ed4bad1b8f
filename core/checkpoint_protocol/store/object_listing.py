"""Listings by obstore: many pages at once, and those in which somebody has put an object under a name that is no path.

obstore gives nothing of an answer of a store in which one name is none of its paths: with a control character, `..` or nothing
between two slashes, or not in UTF-8. Whoever may write into a bucket could stop everybody who lists there, by one object. So a
folder in which there is such a name is listed again, folder by folder.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import obstore
import obstore.exceptions as obstore_errors
from obstore.store import AzureStore, LocalStore

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.store.parallel import in_threads, streamed

_log = logging.getLogger(__name__)

StoredT = TypeVar("StoredT")

#: Names in one answer; so many answers are waited for before the rest is asked for in parts, by so many at once.
_PAGE: Final = 1_000
_PAGES_IN_ORDER: Final = 2
_LISTERS: Final = 16
#: Of each part, so many names are held at a time: a stranger may have put any number of objects into one of them.
_MOST_OF_A_PART: Final = 8 * _PAGE
#: Control characters, and bytes that are not UTF-8, as Python reads names of files.
_NOT_IN_PATHS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
#: As obstore names a file until its put is whole.
_UNFINISHED_PUT: Final = re.compile(r"#[0-9]+$")
_NO_PATH: Final = re.compile(r'Path "(.*?)"(?: contained|: Encountered)', re.DOTALL)


class NotListed(NeedsChange):
    """An object has a name that is no path, and hides the others in its folder, which can be asked for by their names only."""

    def __init__(self, where: str, name: str) -> None:
        super().__init__(
            reasons.FOLDER_NOT_LISTED,
            f"{where} cannot be listed: it has an object of another program, with a name that is no path: {name}; remove "
            "that object, and find out who may write there",
        )

    def __reduce__(self) -> tuple[type[NeedsChange], tuple[str, str]]:
        return (NeedsChange, (self.reason, self.message))


def shown(listing: Iterator[StoredT]) -> Iterator[StoredT]:
    """Give what a listing can show, for whoever finds what it does not show by its name, or need not find it."""
    with contextlib.suppress(NotListed):
        yield from listing


def name_that_is_no_path(error: Exception) -> str:
    """Return the name that obstore could not take, as a literal of Python: it may have any character in it."""
    found = _NO_PATH.search(str(error))
    return repr(found[1] if found else str(error)[:200])


def walk_objects(store: obstore.store.ObjectStore, folder: str, root: str) -> Iterator[obstore.ObjectMeta]:
    """Give what lies below a folder (which ends in a slash), folder by folder; name in the log what has a name that is no path.

    NotListed at the end if such a name has hidden others: on disk none is. `root`: the store's URI, for messages. Raises what
    obstore raises, and OSError.
    """
    pending, hidden = [folder], None
    while pending:
        at = pending.pop()
        if isinstance(store, LocalStore) and store.prefix is not None:
            yield from _on_disk(str(store.prefix), at, pending, root)
            continue
        try:
            found = obstore.list_with_delimiter(store, at)
        except obstore_errors.InvalidPathError as error:
            hidden = NotListed(f"{root}/{at}", name_that_is_no_path(error))
            _log.warning("%s", hidden.message)
            continue
        yield from found["objects"]
        pending += [f"{below}/" for below in found["common_prefixes"]]
    if hidden is not None:
        raise hidden


def _on_disk(root_folder: str, at: str, pending: list[str], root: str) -> Iterator[obstore.ObjectMeta]:
    try:
        entries = os.scandir(os.path.join(root_folder, at))
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if _NOT_IN_PATHS.search(entry.name):
                _log.warning("%s/%s has an object of another program, which is ignored: %r", root, at, entry.name)
            elif entry.is_dir():
                pending.append(f"{at}{entry.name}/")
            elif entry.is_file() and not _UNFINISHED_PUT.search(entry.name):
                path, known = f"{at}{entry.name}", entry.stat()
                modified = datetime.datetime.fromtimestamp(known.st_mtime, datetime.UTC)
                yield {"path": path, "size": known.st_size, "last_modified": modified, "e_tag": None, "version": None}


def list_objects(
    store: obstore.store.ObjectStore, folder: str | None, borders: Sequence[str] = (), expected: int = 0
) -> Iterator[obstore.ObjectMeta]:
    """Give what obstore lists below a folder. Many pages are asked for in parts at once, cut at some of the borders.

    A store answers a page of a thousand at a time, in the order of the names, and the next is asked for by the last name of the
    one before. A local folder has no pages. Azure's are asked for in order, as some of its services do not begin where obstore
    says (Azurite), or answer with nothing then (OneLake: github.com/apache/arrow-rs-object-store/issues/695). Unless more than a
    page is `expected`, some are asked for in order before the rest is cut.
    """
    if isinstance(store, LocalStore | AzureStore) or len(borders) < 2:
        for chunk in obstore.list(store, prefix=folder):
            yield from chunk
        return
    last: str | None = None
    most = min(_LISTERS, expected // _PAGE + 1)
    if most == 1:
        most, count = _LISTERS, 0
        for chunk in obstore.list(store, prefix=folder):
            yield from chunk
            if chunk:
                last, count = chunk[-1]["path"], count + len(chunk)
            if count >= _PAGES_IN_ORDER * _PAGE:
                break
        else:
            return
    rest = sorted(border for border in borders if last is None or border > last)
    starts = [last, *(rest[len(rest) * part // most] for part in range(1, most) if rest)]
    parts = list(zip(starts, [*starts[1:], None], strict=True))
    while parts:
        longer: list[tuple[str | None, str | None]] = []
        for (_, up_to), found in zip(
            parts, streamed(in_threads, lambda part: _list_part(store, folder, *part), parts, _LISTERS), strict=True
        ):
            yield from found
            if len(found) >= _MOST_OF_A_PART:
                longer.append((found[-1]["path"], up_to))
        parts = longer


def _list_part(
    store: obstore.store.ObjectStore, folder: str | None, after: str | None, up_to: str | None
) -> list[obstore.ObjectMeta]:
    """Return what comes after a name (None: all), up to another one and with it; of very many the first."""
    found: list[obstore.ObjectMeta] = []
    for chunk in obstore.list(store, prefix=folder, offset=after):
        found += chunk if up_to is None else [meta for meta in chunk if meta["path"] <= up_to]
        if len(found) >= _MOST_OF_A_PART or (up_to is not None and chunk and chunk[-1]["path"] > up_to):
            break
    return found
