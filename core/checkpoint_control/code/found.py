"""Which files of a folder or an archive are the code of steps: the modules that they import, and the data of these.

An edit of any other file changes no result. So checkpoints, tables, data and tests may lie in the same folder.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

from checkpoint_control.code.imports import MOST_BYTES, Needs, NotFollowed, needs_of
from checkpoint_control.code.trees import Tree

#: Files beyond so many bytes, or so many files, count by their names and sizes only.
MOST_READ_BYTES: Final = 256 << 20
MOST_READ_FILES: Final = 10_000
#: Of the modules that are parsed, together: some seconds.
MOST_PARSED_BYTES: Final = 8 << 20
_MOST_DEPTH: Final = 64
_INIT: Final = "__init__.py"
_NO_DATA: Final = (".py", ".pyi")


@dataclass(frozen=True, slots=True)
class CodeFiles:
    """The files of some modules, sorted, relative to the code. `missing`: those of the modules that are not there.

    `digest` is of the paths and of what the files hold; of those that are `by_size`, of their sizes. `not_followed`: imports that
    only running the code would tell.
    """

    files: tuple[str, ...]
    digest: str
    missing: tuple[str, ...] = ()
    by_size: tuple[str, ...] = ()
    not_followed: tuple[NotFollowed, ...] = ()


def find_code(tree: Tree, modules: Iterable[str], *, are_named: bool = False) -> CodeFiles:
    """Return what these modules are made of: their files, those of the modules that they import, at all depths, and data files.

    Data are the files of packages, and files beside a module, or at the top, whose names a module spells out, as far as the tree
    keeps them. With `are_named` a person has said that it is these modules: of a package all of them, and
    of imports that cannot be followed none. Else one of these makes all Python files code.

    Raises what the tree does.
    """
    search = _Search(tree)
    missing = tuple(sorted(name for name in set(modules) if not search.add(name, is_whole=are_named)))
    search.follow()
    if search.not_followed and not are_named:
        search.files.update(path for path in search.below("") if path.endswith(".py"))
    search.add_data()
    files = tuple(sorted(search.files))
    digest, by_size = _digest_of(tree, files)
    return CodeFiles(files, digest, missing, by_size, tuple(search.not_followed))


@dataclass(slots=True)
class _Search:
    tree: Tree
    files: set[str] = field(default_factory=set)
    not_followed: list[NotFollowed] = field(default_factory=list)
    #: By folder, the words of the modules in it.
    _words: dict[str, set[str]] = field(default_factory=dict)
    _packages: set[str] = field(default_factory=set)
    _to_read: deque[str] = field(default_factory=deque)
    _names: dict[str, dict[str, bool]] = field(default_factory=dict)
    _parsed_bytes: int = 0

    def add(self, module: str, *, is_whole: bool = False) -> bool:
        """Add the files of a module, and of the packages that it lies in, as an import runs them; return whether it is there."""
        folder = ""
        parts = module.split(".")
        for number, part in enumerate(parts):
            here = self._list(folder)
            path = _join(folder, part)
            is_package = here.get(part, False) and self._list(path).get(_INIT) is False
            file = next((f"{part}{end}" for end in (*EXTENSION_SUFFIXES, ".py") if here.get(f"{part}{end}") is False), None)
            if is_package:
                self._packages.add(path)
                self._add_file(_join(path, _INIT))
            elif file is not None:
                self._add_file(_join(folder, file))
                return number == len(parts) - 1
            elif not here.get(part, False):
                return False
            folder = path
        if is_whole:
            for path in self.below(folder):
                if path.endswith(".py"):
                    self._add_file(path)
        return True

    def follow(self) -> None:
        """Read what was added, and add what that needs, until nothing is new."""
        while self._to_read:
            path = self._to_read.popleft()
            folder = path.rpartition("/")[0]
            needs = self._needs_of(path, folder.replace("/", "."))
            self.not_followed += needs.not_followed
            for module in sorted(needs.modules):
                self.add(module)
            for place in {folder, ""}:
                self._words.setdefault(place, set()).update(needs.words)
                for word in sorted(needs.words & self._list(place).keys()):
                    # A script that is started by its name.
                    if word.endswith(".py") and self._list(place)[word] is False and self._is_kept(_join(place, word)):
                        self._add_file(_join(place, word))

    def add_data(self) -> None:
        """Add the data of the packages and modules that were added."""
        for package in self._packages:
            if not any(package.startswith(f"{other}/") for other in self._packages):
                self.files.update(path for path in self.below(package) if not path.endswith(_NO_DATA))
        for place, words in self._words.items():
            self.files.update(self.below(place, words))

    def below(self, folder: str, words: set[str] | None = None, depth: int = 0) -> Iterator[str]:
        """Give the files below a folder that are kept; with `words`, those whose path below the folder is made of these."""
        names = self._list(folder)
        if depth > _MOST_DEPTH or "pyvenv.cfg" in names:
            return
        for name in sorted(names):
            path = _join(folder, name)
            is_passed_over = name.startswith(".") or name == "__pycache__" or name.endswith(".pyc")
            if (
                is_passed_over
                or (words is not None and name not in words)
                or not self.tree.keeps(path, is_named=words is not None)
            ):
                continue
            if names[name]:
                yield from self.below(path, words, depth + 1)
            else:
                yield path

    def _add_file(self, path: str) -> None:
        if path not in self.files:
            self.files.add(path)
            self._to_read.append(path)

    def _needs_of(self, path: str, package: str) -> Needs:
        if not path.endswith(".py"):
            return Needs(not_followed=(NotFollowed(path, 1, "it is compiled"),))
        size = self.tree.size(path)
        if size > MOST_BYTES or self._parsed_bytes + size > MOST_PARSED_BYTES:
            return Needs(not_followed=(NotFollowed(path, 1, f"it is too large to be parsed ({size:,} bytes)"),))
        self._parsed_bytes += size
        return needs_of(b"".join(self.tree.chunks(path)), path, package)

    def _is_kept(self, path: str) -> bool:
        return self.tree.keeps(path, is_named=True)

    def _list(self, folder: str) -> dict[str, bool]:
        if folder not in self._names:
            self._names[folder] = self.tree.names(folder)
        return self._names[folder]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _digest_of(tree: Tree, files: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    digest, left_bytes, left_files = hashlib.sha256(), MOST_READ_BYTES, MOST_READ_FILES
    by_size: list[str] = []
    for path in files:
        size = tree.size(path)
        digest.update(f"\0{path}\0{size}\0".encode("utf-8", "surrogateescape"))
        if size > left_bytes or left_files == 0:
            by_size.append(path)
            continue
        for chunk in tree.chunks(path):
            digest.update(chunk)
        left_bytes, left_files = left_bytes - size, left_files - 1
    return digest.hexdigest(), tuple(by_size)
