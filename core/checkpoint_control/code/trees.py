"""The files that code lies in, of a folder and of an archive alike: names by folder, and what a file holds, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.hiding import modules_in, refuse_hiding
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.store.object_store import local_path

_CHUNK_BYTES: Final = 1 << 20


class Tree(Protocol):
    """Files below a root. Paths are relative to it, with slashes; the root is the empty path."""

    def names(self, folder: str) -> dict[str, bool]:
        """Return the names in a folder, and whether each is a folder; nothing where there is no such folder."""

    def size(self, path: str) -> int:
        """Return how many bytes a file has."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Give what a file holds, a megabyte at a time."""

    def keeps(self, path: str, *, is_named: bool) -> bool:
        """Whether a file, or what lies in a folder, may be data of the code. `is_named`: a module spells out its name."""


@dataclass(frozen=True, slots=True)
class FolderTree:
    """A folder of this machine. Links to folders are passed over: they may lead around. Raises OSError."""

    root: Path
    may_be_data: Callable[[str, bool], bool] = lambda _path, _is_named: True

    def names(self, folder: str) -> dict[str, bool]:
        place = self.root / folder
        if not place.is_dir():
            return {}
        return {entry.name: entry.is_dir() for entry in place.iterdir() if not (entry.is_symlink() and entry.is_dir())}

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def chunks(self, path: str) -> Iterator[bytes]:
        with (self.root / path).open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def keeps(self, path: str, *, is_named: bool) -> bool:
        return self.may_be_data(path, is_named)


@dataclass(frozen=True, slots=True)
class ArchiveTree:
    """A zip archive. Raises ArchiveRefused where it must not be used, or a file cannot be read."""

    archive: archives.OpenArchive
    _folders: dict[str, dict[str, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.archive.paths:
            parts = path.split("/")
            for depth in range(len(parts)):
                self._folders.setdefault("/".join(parts[:depth]), {})[parts[depth]] = depth < len(parts) - 1

    def names(self, folder: str) -> dict[str, bool]:
        return self._folders.get(folder, {})

    def size(self, path: str) -> int:
        return self.archive.size(path)

    def chunks(self, path: str) -> Iterator[bytes]:
        return self.archive.chunks(path)

    def keeps(self, path: str, *, is_named: bool) -> bool:
        return True


def code_folder(spec: Spec) -> Path | None:
    """Return the folder of code.path. NeedsChange if it is not a folder on this machine, or hides modules of the driver."""
    if spec.code.path is None:
        return None
    folder = local_path(spec.code.path)
    if folder is None or not folder.is_dir():
        raise NeedsChange(reasons.CODE_MISSING, f"spec.code.path: {spec.code.path} is not a folder on this machine")
    refuse_hiding(modules_in(folder), f"spec.code.path: {spec.code.path}")
    return folder.resolve()
