"""Which type the texts of a CSV column have: one of which each of them can be written back, and else string.

Texts are taken as they are: 00501 is no number, since the number would be written 501. The rules lie here, in plain Python, so
that the driver, which fixes the types of an epoch, and `validate`, which foretells them, have the same ones.
docs/guides/sources.md shows them as a table.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Final, Literal

#: The types that are inferred, by their names in source.types.
TypeName = Literal[
    "string",
    "bool",
    "int64",
    "decimal(38,0)",
    "double",
    "date",
    "timestamp[us]",
    "timestamp[ns]",
    "timestamp[us, UTC]",
    "timestamp[ns, UTC]",
]

#: What a text is by itself. A double does not hold every large integer, an int64 no huge one. A padded fraction ends in a 0 that
#: is not its only digit. Nanoseconds have no room for far times.
_Kind = Literal[
    "integer",
    "large",
    "huge",
    "fraction",
    "padded",
    "exponent",
    "no number",
    "true",
    "True",
    "TRUE",
    "date",
    "far date",
    "us",
    "far us",
    "ns",
    "us UTC",
    "far us UTC",
    "ns UTC",
    "text",
]

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_FRACTION: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.([0-9]+)")
#: 1.5E7 and 1e-05, but not 12E45 and 1e5, which may be names of something.
_EXPONENT: Final = re.compile(r"-?[1-9](?:\.[0-9]+[eE][+-]?|[eE][+-])[0-9]{1,3}")
_NO_NUMBERS: Final = frozenset({"nan", "NaN", "inf", "-inf", "Infinity", "-Infinity"})
_BOOLS: Final[dict[str, _Kind]] = {
    "true": "true",
    "false": "true",
    "True": "True",
    "False": "True",
    "TRUE": "TRUE",
    "FALSE": "TRUE",
}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.([0-9]{1,9}))?)?)(Z|\+00(?::?00)?)?"
)
#: So many decimal digits a double always gives back.
_EXACT_DIGITS: Final = 15
_LARGEST_IN_DOUBLE: Final = 1 << 53
_LARGEST_DECIMAL_DIGITS: Final = 38
_NANOSECOND_YEARS: Final = range(1678, 2262)

_INTEGERS: Final = frozenset({"integer", "large", "huge"})
_FRACTIONS: Final = frozenset({"fraction", "padded", "exponent"})

#: What the texts of a column of each type may be, also those after the sample.
_HELD: Final[dict[str, frozenset[str]]] = {
    "bool": frozenset({"true", "True", "TRUE"}),
    "int64": frozenset({"integer", "large"}),
    "decimal(38,0)": _INTEGERS,
    "double": _FRACTIONS | {"integer", "no number"},
    "date": frozenset({"date", "far date"}),
    "timestamp[us]": frozenset({"date", "far date", "us", "far us"}),
    "timestamp[ns]": frozenset({"date", "us", "ns"}),
    "timestamp[us, UTC]": frozenset({"us UTC", "far us UTC"}),
    "timestamp[ns, UTC]": frozenset({"us UTC", "ns UTC"}),
}

_NUMBER_LIKE: Final = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*|[+-]?0[xX][0-9a-fA-F]+")
_TIME_LIKE: Final = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?")
_ZONED_LIKE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.*[+-][0-9]{2}(?::?[0-9]{2})?")
_DATE_LIKE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[T ].*)?")


@dataclass(frozen=True, slots=True)
class Inferred:
    """The type of a column, the text that made it so (None if there is none), and why, to be read after that text."""

    type: TypeName
    text: str | None
    why: str


@dataclass(slots=True)
class TextColumn:
    """The texts of a column, as far as they decide its type. NULL is no text."""

    _first: dict[_Kind, str] = field(default_factory=dict)
    #: How many digits after the point there are, with the first number that has so many.
    _scales: dict[int, str] = field(default_factory=dict)

    def add(self, texts: Iterable[str]) -> None:
        """Take the next texts; those that were there before may be left out."""
        for text in texts:
            kind = _kind_of(text)
            self._first.setdefault(kind, text)
            if kind in ("fraction", "padded"):
                self._scales.setdefault(len(text.partition(".")[2]), text)
            elif kind in _INTEGERS:
                self._scales.setdefault(0, text)

    def infer(self) -> Inferred:
        """Return the type that holds every text that was taken; string where none other does."""
        kinds = frozenset(self._first)
        if not kinds:
            return Inferred("string", None, "has no value in the rows of the sample")
        if "text" in kinds:
            text = self._first["text"]
            return Inferred("string", text, _why_text(text))
        if kinds & _INTEGERS or kinds & _FRACTIONS:
            return self._number(kinds)
        for name in ("bool", "date", "timestamp[us]", "timestamp[ns]", "timestamp[us, UTC]", "timestamp[ns, UTC]"):
            if kinds <= _HELD[name] and (name != "bool" or len(kinds) == 1):
                return Inferred(name, self._decisive(kinds), "is one")
        return self._mixed()

    def _number(self, kinds: frozenset[_Kind]) -> Inferred:
        if kinds <= _INTEGERS:
            is_huge = "huge" in kinds
            text = self._first["huge"] if is_huge else next(iter(self._first.values()))
            return Inferred("decimal(38,0)" if is_huge else "int64", text, "has more than 64 bits" if is_huge else "is one")
        if not kinds <= _HELD["double"] | _INTEGERS:
            return self._mixed()
        if large := kinds & {"large", "huge"}:
            other = next(text for kind, text in self._first.items() if kind not in _INTEGERS)
            return Inferred(
                "string", self._first[min(large)], f"lies beyond 2^53 and stands beside {other!r}: a double would round it"
            )
        if "padded" in kinds and len(self._scales) > 1:
            padded = self._first["padded"]
            other = next(text for scale, text in self._scales.items() if scale != len(padded.partition(".")[2]))
            return Inferred("string", padded, f"ends in a zero, and {other!r} has another number of digits after the point")
        text = next(text for kind, text in self._first.items() if kind not in _INTEGERS)
        return Inferred("double", text, "is one")

    def _decisive(self, kinds: frozenset[_Kind]) -> str:
        """Return the first text of those that ask for most."""
        order: tuple[_Kind, ...] = ("ns", "ns UTC", "us", "far us", "us UTC", "far us UTC")
        return self._first[next((kind for kind in order if kind in kinds), next(iter(self._first)))]

    def _mixed(self) -> Inferred:
        (_, one), *others = self._first.items()
        return Inferred(
            "string", others[-1][1] if others else one, f"stands beside {one!r}" if others else "is no number by itself"
        )


def is_held(text: str, kind: TypeName) -> bool:
    """Whether a text of a column whose type was inferred can be written back: what was so in the sample must be so after it.

    How many digits follow the point is taken from the sample only.
    """
    return kind == "string" or _kind_of(text) in _HELD[kind]


def _kind_of(text: str) -> _Kind:
    if _INTEGER.fullmatch(text):
        return _kind_of_integer(text)
    if fraction := _FRACTION.fullmatch(text):
        if not _is_exact(text):
            return "text"
        return "padded" if len(fraction[1]) > 1 and fraction[1].endswith("0") else "fraction"
    if text in _BOOLS:
        return _BOOLS[text]
    if text in _NO_NUMBERS:
        return "no number"
    if _EXPONENT.fullmatch(text):
        return "exponent" if _is_exact(text) else "text"
    if _DATE.fullmatch(text):
        year = _year(text)
        return "text" if year is None else "date" if year in _NANOSECOND_YEARS else "far date"
    if timestamp := _TIMESTAMP.fullmatch(text):
        return _kind_of_timestamp(timestamp)
    return "text"


def _kind_of_integer(text: str) -> _Kind:
    if len(text) <= _EXACT_DIGITS:
        return "integer"
    if len(text.removeprefix("-")) > _LARGEST_DECIMAL_DIGITS:
        return "text"
    number = int(text)
    if -_LARGEST_IN_DOUBLE <= number <= _LARGEST_IN_DOUBLE:
        return "integer"
    return "large" if -(1 << 63) <= number < 1 << 63 else "huge"


def _is_exact(text: str) -> bool:
    """Whether the shortest text of the double is the same number: then it can be written back."""
    if len(text) <= _EXACT_DIGITS and "e" not in text and "E" not in text:
        return True
    double = float(text)
    return isfinite(double) and Decimal(repr(double)) == Decimal(text)


def _kind_of_timestamp(timestamp: re.Match[str]) -> _Kind:
    day, time, digits, zone = timestamp.groups()
    year = _year(f"{day} {time.partition('.')[0]}")
    if year is None:
        return "text"
    is_near = year in _NANOSECOND_YEARS
    if len(digits or "") > 6:
        return "text" if not is_near else "ns UTC" if zone else "ns"
    if zone:
        return "us UTC" if is_near else "far us UTC"
    return "us" if is_near else "far us"


def _year(text: str) -> int | None:
    """Return the year of a date or a time of seconds; None if there is no such day or time."""
    try:
        return datetime.datetime.fromisoformat(text).year
    except ValueError:
        return None


def _why_text(text: str) -> str:
    if _INTEGER.fullmatch(text):
        return f"has more than {_LARGEST_DECIMAL_DIGITS} digits"
    if _NUMBER_LIKE.fullmatch(text):
        return "is no number that can be written back as it stands"
    if _TIME_LIKE.fullmatch(text):
        return "is a time of day, which is never inferred"
    if _ZONED_LIKE.fullmatch(text):
        return "has a zone other than UTC, which a timestamp does not keep"
    if _DATE_LIKE.fullmatch(text):
        return "is no date or time that can be written back as it stands"
    return "is text"
