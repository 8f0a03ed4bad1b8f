"""The files that code lies in, of a folder and of an archive alike: names by folder, and what a file holds, bit by bit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from pathspec import GitIgnoreSpec

from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.hiding import modules_in, refuse_hiding
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import API_VERSION, Spec
from checkpoint_protocol.places.patterns import Pattern, split
from checkpoint_protocol.places.uris import local_path

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


#: Manifests and settings say how a write is run, and no step reads them.
_SETTINGS: Final = re.compile(r"(.*\.)?settings\.ya?ml")
_MANIFEST: Final = re.compile(rf"^apiVersion:\s*['\"]?{API_VERSION.partition('/')[0]}/".encode(), re.MULTILINE)
_HEAD_BYTES: Final = 4096
_IGNORES: Final = ".gitignore"


def keeping(root: Path, spec: Spec) -> Callable[[str, bool], bool]:
    """Return what says of a path, relative to the folder, whether it may be data of its code. Of a folder: anything in it.

    What a module names may be data that git ignores: a model is often too large for it.
    """
    return _Kept(root, tuple(_named_places(spec))).keeps


def _named_places(spec: Spec) -> list[tuple[Path, Pattern]]:
    found = []
    for field_path, uri in spec.named_uris():
        path = local_path(uri)
        if path is not None and field_path != "code.path":
            folder, pattern = split(str(path.absolute()))
            found.append((Path(folder).resolve(), pattern))
    return found


@dataclass(slots=True)
class _Kept:
    root: Path
    places: tuple[tuple[Path, Pattern], ...]
    _ignores: dict[Path, GitIgnoreSpec] = field(default_factory=dict)

    def keeps(self, path: str, is_named: bool) -> bool:
        file = self.root / path
        return not (self._is_of_manifest(file) or _is_manifest(file) or (not is_named and self._is_ignored(file)))

    def _is_of_manifest(self, file: Path) -> bool:
        return any(
            file.is_relative_to(folder) and pattern.matches(file.relative_to(folder).parts) for folder, pattern in self.places
        )

    def _is_ignored(self, file: Path) -> bool:
        """Whether git ignores it: the last rule counts that says something, of the folder that is nearest to the file."""
        name = f"{file}/" if file.is_dir() else str(file)
        for folder in file.parents:
            said = self._ignores_of(folder).check_file(name[len(str(folder)) :].lstrip("/"))
            if said.include is not None:
                return said.include
            if (folder / ".git").exists():
                return False
        return False

    def _ignores_of(self, folder: Path) -> GitIgnoreSpec:
        if folder not in self._ignores:
            try:
                lines = (folder / _IGNORES).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                lines = []
            self._ignores[folder] = GitIgnoreSpec.from_lines(lines)
        return self._ignores[folder]


def _is_manifest(file: Path) -> bool:
    if file.suffix not in (".yaml", ".yml") or not file.is_file():
        return False
    with file.open("rb") as opened:
        return _SETTINGS.fullmatch(file.name) is not None or _MANIFEST.search(opened.read(_HEAD_BYTES)) is not None
