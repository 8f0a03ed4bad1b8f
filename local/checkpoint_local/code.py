"""The code of a write's steps, as this machine has it, and which files of its folder may be data of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from checkpoint_control.code.archive import CodeArchive, fetch_uri
from checkpoint_control.code.digest import code_digest
from checkpoint_control.code.trees import ArchiveTree, FolderTree, Tree, code_folder
from checkpoint_protocol.code.archives import OpenArchive
from checkpoint_protocol.manifest.spec import API_VERSION, Spec
from checkpoint_protocol.places.patterns import Pattern, split
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.uris import local_path

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


def code_archive(spec: Spec, settings: Settings) -> CodeArchive | None:
    """Fetch the archive of code.uri, if that is where the code lies."""
    return fetch_uri(spec.code.uri, settings, may_be_local=True) if spec.code.uri is not None else None


def code_tree(spec: Spec, archive: CodeArchive | None) -> Callable[[], Tree | None]:
    """Return what opens the code of a manifest, where `code_archive` has returned this. None: it is in installed packages."""
    if archive is not None:
        return lambda: ArchiveTree(OpenArchive(archive.data))

    def of_folder() -> Tree | None:
        folder = code_folder(spec)
        return FolderTree(folder, keeping(folder, spec)) if folder is not None else None

    return of_folder


def digests_with(archive: CodeArchive | None, image: str | None = None) -> Callable[[Spec], str]:
    """Return what gives the digest of a manifest's code, where `code_archive` has returned this.

    `image`: that of a cluster's drivers, where the write is one of a cluster.
    """
    return lambda spec: code_digest(spec, code_tree(spec, archive), image)
