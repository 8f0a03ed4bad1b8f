"""Paths with wildcards (* and ? in one name, ** for any number of folders), and which namespaces a grant names.

Names that start with _ or . are markers and leftovers of other programs (_SUCCESS, .crc, _temporary): a wildcard or a folder
takes them only where the pattern itself spells that first character. With = in it (_year=2025) a name that starts with _ is a
column's folder, as for Spark (HadoopFSUtils.shouldFilterOutPathName), and hides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator

State = frozenset[int]

#: A character by itself, as shells and Python's glob spell it, or any other one. A [ that begins no such thing is itself.
_SIGN: Final = re.compile(r"\[[*?\[]\]|.", re.DOTALL)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@lru_cache(256)
def wildcards(text: str, *, one_by_question_mark: bool = True) -> re.Pattern[str]:
    """Return the expression for texts in which * stands for any characters, and ? for one. It goes over a name but once.

    Without `one_by_question_mark`, * is the only character that stands for others, and nothing spells it itself.

    Where what comes before a * fits, it fits first of all: nothing is gained by trying later places. Tried they would be in `.*`,
    for each * again, and while an expression is matched no thread of the process runs.
    """
    pieces = [""]
    for sign in _SIGN.findall(text) if one_by_question_mark else text:
        if sign == "*":
            pieces.append("")
        else:
            pieces[-1] += "." if one_by_question_mark and sign == "?" else re.escape(_spelled(sign))
    first, *rest = pieces
    if not rest:
        return re.compile(first, re.DOTALL)
    *between, last = rest
    return re.compile(f"{first}{''.join(f'(?>.*?{piece})' for piece in between if piece)}.*{last}", re.DOTALL)


def _spelled(sign: str) -> str:
    return sign[1] if len(sign) > 1 else sign


def is_wild(name: str) -> bool:
    """Whether a name, or a path, has a wildcard in it."""
    return not {"*", "?"}.isdisjoint(_SIGN.findall(name))


def _literal(name: str) -> str:
    """Return the one name that a name without wildcards means."""
    return "".join(map(_spelled, _SIGN.findall(name))) if "[" in name else name


@dataclass(frozen=True, slots=True)
class Pattern:
    """The names below a folder that are meant; without segments, everything. What is below a matching folder matches."""

    segments: tuple[str, ...]

    def start(self) -> State:
        return self._closed({0})

    def step(self, state: State, name: str) -> State:
        """Return the state below a folder (or at a file) of this name. An empty state: nothing below can match."""
        reached: set[int] = set()
        for index in state:
            if index == len(self.segments) or self.segments[index] == "**":
                if not _is_hidden(name):
                    reached.add(index)
            elif self._meets(self.segments[index], name):
                reached.add(index + 1)
        return self._closed(reached)

    def accepts(self, state: State) -> bool:
        return len(self.segments) in state

    def matches(self, names: Sequence[str]) -> bool:
        state = self.start()
        for name in names:
            state = self.step(state, name)
        return self.accepts(state)

    def _closed(self, state: set[int]) -> State:
        for index in sorted(state):
            while index < len(self.segments) and self.segments[index] == "**":
                index += 1
                state.add(index)
        return frozenset(state)

    @staticmethod
    def _meets(segment: str, name: str) -> bool:
        if _is_hidden(name) and not segment.startswith(name[0]):
            return False
        return wildcards(segment).fullmatch(name) is not None


def split(key: str) -> tuple[str, Pattern]:
    """Return the folder in front of the first wildcard (without slash at its end, as it is called), and the pattern below it."""
    names = key.split("/")
    wild = next((i for i, name in enumerate(names) if is_wild(name)), None)
    if wild is None:
        return _literal(key.rstrip("/")), Pattern(())
    segments = [name for name in names[wild:] if name]
    # Any number of folders twice is any number of folders.
    once = [name for name, before in zip(segments, [None, *segments], strict=False) if name != "**" or before != "**"]
    return _literal("/".join(names[:wild])), Pattern(tuple(once))


# Which namespaces may use a catalog, a table or a storage prefix. Pure.
#
# Whoever installs the operator grants, in its settings; a manifest cannot. On one machine there is one user, and nothing to
# grant.


_NAMESPACE_PATTERN: Final = re.compile(r"[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?")


def _check_namespace_pattern(pattern: str) -> str:
    if not _NAMESPACE_PATTERN.fullmatch(pattern):
        raise ValueError(
            f"{pattern!r} names no namespace; a name is expected, in which * stands for any characters: team-a, etl-*"
        )
    return pattern


#: A namespace, or several by *.
NamespacePattern = Annotated[str, AfterValidator(_check_namespace_pattern)]


@dataclass(frozen=True, slots=True)
class Tenant:
    """The namespace that something is done for. `is_only`: no other is served, so that what names nobody is for it."""

    namespace: str
    is_only: bool = False

    def is_granted(self, namespaces: Iterable[str]) -> bool:
        """Whether a grant that names these namespaces is one for this tenant. One that names none is for the only tenant."""
        patterns = tuple(namespaces)
        return is_named(self.namespace, patterns) if patterns else self.is_only


def is_named(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns means this name. A * stands for any characters, points among them."""
    return any(wildcards(pattern, one_by_question_mark=False).fullmatch(name) for pattern in patterns)
