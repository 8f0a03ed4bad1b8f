"""What a module's text says that it needs: the modules that it imports, and the words that may name its data files. Pure.

Nothing is imported. What only running it would tell, such as a plugin that is loaded by a computed name, is not followed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: What is parsed takes up to 450 times its size in memory, and a cluster's operator parses what anybody may have written.
MOST_BYTES: Final = 256 << 10
#: Functions whose first argument names a module, or a file of code.
_BY_NAME: Final = frozenset({"import_module", "__import__", "run_module"})
_NEVER_FOLLOWED: Final = frozenset({"run_path", "spec_from_file_location", "iter_modules", "walk_packages", "addsitedir"})
_CHANGES_OF_A_LIST: Final = frozenset({"append", "extend", "insert"})
_MOST_WORD_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class NotFollowed:
    """An import that only running the code would tell: the file, relative to the code, the line and the call."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what}"


@dataclass(frozen=True, slots=True)
class Needs:
    """What the text of one module says.

    `modules` are absolute dotted names, some of which may be of an attribute of a module. `words` are the parts, between slashes,
    of its string constants.
    """

    modules: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    not_followed: tuple[NotFollowed, ...] = ()


def needs_of(source: bytes, file: str, package: str) -> Needs:
    """Return what a module says. `package`: the dotted name of the package that it lies in; empty at the top.

    A module that cannot be parsed needs what nobody knows: running it says why.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Needs(not_followed=(NotFollowed(file, getattr(error, "lineno", None) or 1, "it cannot be parsed"),))
    modules: set[str] = set()
    words: set[str] = set()
    not_followed: list[NotFollowed] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                modules.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                modules.update(_imported_from(node, package))
            case ast.Constant(value=str(text)):
                words.update(part for part in text.split("/") if 0 < len(part) <= _MOST_WORD_BYTES and part not in (".", ".."))
            case ast.Call():
                name = _called(node)
                if (named := _named_module(node, name, package)) is not None:
                    modules.add(named)
                elif name in _BY_NAME or name in _NEVER_FOLLOWED:
                    not_followed.append(NotFollowed(file, node.lineno, f"{name}(...)"))
                elif _changes_the_path(node):
                    not_followed.append(NotFollowed(file, node.lineno, f"sys.path.{name}(...)"))
            case ast.Assign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(_is_the_path(target) for target in targets):
                    not_followed.append(NotFollowed(file, node.lineno, "sys.path = ..."))
            case _:
                pass
    return Needs(frozenset(modules), frozenset(words), tuple(not_followed))


def _imported_from(node: ast.ImportFrom, package: str) -> Iterator[str]:
    base = _absolute(node.module or "", node.level, package)
    if base is None:
        return
    if base:
        yield base
    yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")


def _absolute(name: str, level: int, package: str) -> str | None:
    """Return a relative name as an absolute one; None if it leads out of the packages, which no import does."""
    if level == 0:
        return name
    parents = package.split(".") if package else []
    if level - 1 > len(parents):
        return None
    return ".".join([*parents[: len(parents) - level + 1], *([name] if name else [])])


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _named_module(node: ast.Call, name: str, package: str) -> str | None:
    """Return the module that a call loads, where the text names it."""
    match node.args:
        case [ast.Constant(value=str(named)), *_] if name in _BY_NAME:
            return _absolute(named.lstrip("."), len(named) - len(named.lstrip(".")), package)
    return None


def _changes_the_path(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES_OF_A_LIST and _is_the_path(node.func.value)


def _is_the_path(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys"
