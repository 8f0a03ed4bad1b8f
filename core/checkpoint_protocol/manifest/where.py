"""The row filter of `source.where` and `sink.where`: what it says, and whether it fits the columns. Pure.

    condition  := and-ed and or-ed predicates, `not`, parentheses
    predicate  := column (= | == | != | <> | < | <= | > | >=) literal, or the literal first
                | column [not] in (literal, ...)        | column between literal and literal
                | column is [not] null                  | column is [not] nan
                | column [not] like 'beginning%'
    column     := letters, digits, _ and $; or anything without a dot in double quotes
    literal    := 'text' ('' is a quote in it), 12, -0.5, true, false; dates and times are texts as in ISO 8601

Everything here is also a row filter of pyiceberg's, which means the same. It is not parsed by pyiceberg, because both programs
must understand it alike and only this package is shared; and because pyiceberg bends a literal until it fits (an
integer column = 1.5 becomes = 2, and one that is not 3000000000 takes NULLs). Here a literal that does not fit is refused.

SQL's three-valued logic: a row is taken where the condition is true, and not where it is NULL. NaN is neither equal to, less
nor greater than anything, also under `not`. A condition is kept without `not`s: they are moved to the predicates, which have
complements.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Final, Literal, NoReturn

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
#: As it is written.
Given = bool | int | Decimal | str
#: As the column's type has it.
Value = bool | int | float | Decimal | str | datetime.date | datetime.datetime

_COMPLEMENTS: Final[Mapping[Operator, Operator]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED: Final[Mapping[Operator, Operator]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SPELLINGS: Final[Mapping[str, Operator]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_DEEPEST: Final = 50
#: The largest double has 309 digits.
_LONGEST_NUMBER: Final = 1_000


@dataclass(frozen=True, slots=True)
class Compare:
    column: str
    operator: Operator
    value: Given


@dataclass(frozen=True, slots=True)
class IsIn:
    column: str
    values: tuple[Given, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class IsNan:
    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class BeginsWith:
    column: str
    beginning: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]


Predicate = Compare | IsIn | IsNull | IsNan | BeginsWith
Condition = Predicate | AllOf | AnyOf


def parse_where(text: str) -> Condition:
    """Return the condition that a text means. NeedsChange(ManifestInvalid) names the place in it that is wrong."""
    return _Parser(text).parse()


def predicates_of(condition: Condition) -> Iterator[Predicate]:
    """Give all predicates, from left to right."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from predicates_of(part)
    else:
        yield condition


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return the columns that a condition names, each once, in the order of the text."""
    return tuple(dict.fromkeys(predicate.column for predicate in predicates_of(condition)))


# --- does it fit the columns? ---------------------------------------------------------------------------------------------


def check_where(condition: Condition, types: Mapping[str, str], else_hint: str = "") -> None:
    """Raise NeedsChange(ManifestInvalid) if a column does not exist, or a literal is not of its type.

    `types`: the columns, with their Arrow types as Arrow prints them (int64, timestamp[us, tz=UTC], decimal128(10, 2)).
    `else_hint`: what one can do, beside correcting the name, about a column that does not exist.
    """
    for predicate in predicates_of(condition):
        if predicate.column not in types:
            raise _refused(f"there is no column {predicate.column!r} (there are {', '.join(types)}); correct it{else_hint}")
        kind = types[predicate.column]
        match predicate:
            case Compare(column, _, value):
                value_for(column, value, kind)
            case IsIn(column, values):
                for value in values:
                    value_for(column, value, kind)
            case BeginsWith(column) if kind not in _TEXTS:
                raise _refused(f"the column {column!r} is {kind}, and like is for strings")
            case IsNan(column) if kind not in _FLOATS:
                raise _refused(f"the column {column!r} is {kind}, and nan is for float and double")


_TEXTS: Final = frozenset({"string", "large_string", "string_view"})
#: How a float and a double are laid out, as struct says it.
_LAYOUTS: Final = {"float": "<f", "double": "<d"}
_FLOATS: Final = frozenset(_LAYOUTS)
_INTEGER: Final = re.compile(r"(u?)int(8|16|32|64)")
_DECIMAL: Final = re.compile(r"decimal\d*\((\d+), (-?\d+)\)")
_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]")
#: More than the widest decimal of Arrow has (76): nothing is rounded before it is known to fit.
_MOST_DIGITS: Final = 100
#: What Python's reading of ISO 8601 drops.
_BELOW_MICROSECONDS: Final = re.compile(r"[.,]\d{6}(\d+)")
_YEARS_IN_NANOSECONDS: Final = range(1678, 2262)


def value_for(column: str, given: Given, kind: str) -> Value:
    """Return a literal as a value of the column's Arrow type. NeedsChange(ManifestInvalid) if it is none, without rounding.

    To a floating column numbers are rounded as the column's own values were. Times are returned in UTC where the column has a
    zone.
    """
    if kind == "bool" and isinstance(given, bool):
        return given
    if kind in _TEXTS and isinstance(given, str):
        return given
    if kind in _FLOATS and isinstance(given, int | Decimal) and not isinstance(given, bool):
        return _floating(column, given, kind)
    if (integer := _INTEGER.fullmatch(kind)) and isinstance(given, int) and not isinstance(given, bool):
        bits, is_unsigned = int(integer[2]), bool(integer[1])
        least, most = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not least <= given <= most:
            raise _refused(f"{given} is no {kind}, which the column {column!r} is")
        return given
    if (decimal := _DECIMAL.fullmatch(kind)) and isinstance(given, int | Decimal) and not isinstance(given, bool):
        return _decimal(column, Decimal(given), kind, int(decimal[1]), int(decimal[2]))
    if kind == "date32[day]" and isinstance(given, str):
        try:
            return datetime.date.fromisoformat(given)
        except ValueError:
            raise _refused(f"the column {column!r} is a date, and {given!r} is none; write it as '2026-01-31'") from None
    if (timestamp := _TIMESTAMP.fullmatch(kind)) and isinstance(given, str):
        return _time(column, given, unit=timestamp[1], has_zone=timestamp[2] is not None)
    raise _refused(f"the column {column!r} is {kind}, with which {_shown(given)} cannot be compared{_hint(kind)}")


def _floating(column: str, given: int | Decimal, kind: str) -> float:
    """Round a number as the column's own values were. One that is infinite then would be equal to what it is not."""
    try:
        rounded: float = struct.unpack(_LAYOUTS[kind], struct.pack(_LAYOUTS[kind], float(given)))[0]
    except OverflowError:
        rounded = math.inf
    if math.isinf(rounded):
        raise _refused(f"{given} is no {kind}, which the column {column!r} is")
    return float(given)


def _decimal(column: str, value: Decimal, kind: str, precision: int, scale: int) -> Decimal:
    # Python's own context rounds to 28 digits.
    with localcontext(prec=_MOST_DIGITS):
        quantum = Decimal(1).scaleb(-scale)
        if value.copy_abs() >= Decimal(10) ** (precision - scale) or value != (quantized := value.quantize(quantum)):
            raise _refused(f"{value} is no {kind}, which the column {column!r} is")
    return quantized


def _time(column: str, text: str, *, unit: str, has_zone: bool) -> datetime.datetime:
    value: datetime.datetime | None
    try:
        value = datetime.datetime.fromisoformat(text)
    except ValueError:
        value = None
    if value is None or (value.tzinfo is not None) != has_zone:
        example = "2026-01-31T12:00:00+00:00" if has_zone else "2026-01-31T12:00:00"
        zone = "with a zone" if has_zone else "without a zone"
        raise _refused(f"the column {column!r} is a time {zone}, and {text!r} is none; write it as '{example}'")
    if any(finer.strip("0") for finer in _BELOW_MICROSECONDS.findall(text)):
        raise _refused(
            f"{text} is finer than a microsecond; the column {column!r} can be compared only with times in whole microseconds"
        )
    if has_zone:
        try:
            value = value.astimezone(datetime.UTC)
        except OverflowError:
            raise _refused(f"{text} is before or after all times (years 1 to 9999 in UTC) that can be compared") from None
    if unit == "ns" and value.year not in _YEARS_IN_NANOSECONDS:
        raise _refused(f"{text} is before or after all that the column {column!r} can hold (it has nanoseconds)")
    return value


def _hint(kind: str) -> str:
    if _INTEGER.fullmatch(kind) or kind in _FLOATS or _DECIMAL.fullmatch(kind):
        return "; write a number without quotes" + (", and without a point" if _INTEGER.fullmatch(kind) else "")
    if kind in _TEXTS:
        return "; write a text in single quotes"
    if kind == "bool":
        return "; write true or false"
    if kind == "date32[day]" or _TIMESTAMP.fullmatch(kind):
        return "; write a text in single quotes, as in ISO 8601"
    return "; such columns can only be asked for NULL"


def _shown(given: Given) -> str:
    return str(given).lower() if isinstance(given, bool) else f"'{given}'" if isinstance(given, str) else str(given)


_SOURCE_FIELD: Final = "spec.source.where"
SINK_FIELD: Final = "spec.sink.where"


@contextmanager
def as_of_the_sink() -> Iterator[None]:
    """Name the sink's field, and not the source's, in what is raised inside for a condition that is wrong."""
    try:
        yield
    except NeedsChange as error:
        raise NeedsChange(error.reason, error.message.replace(_SOURCE_FIELD, SINK_FIELD, 1)) from None


def _refused(problem: str) -> NeedsChange:
    return NeedsChange(reasons.MANIFEST_INVALID, f"{_SOURCE_FIELD}: {problem}")


# --- the text -------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"[^".\\]+")
      | (?P<number>[+-]?\d+(?:\.\d+)?)(?![\w.$])
      | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
      | (?P<sign><=|>=|==|!=|<>|[=<>(),])
      | (?P<end>$)
    )""",
    re.VERBOSE,
)
_WORDS: Final = frozenset({"and", "or", "not", "is", "in", "null", "nan", "like", "between", "true", "false"})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent over the tokens. `negated` is handed down instead of making a node for `not`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._cut())
        self._index = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._or(False)
        self._expect("end", "", "'and', 'or' or the end")
        return condition

    def _cut(self) -> Iterator[_Token]:
        at = 0
        while True:
            found = _TOKEN.match(self._text, at)
            if found is None:
                self._refuse(
                    len(self._text) - len(self._text[at:].lstrip()), "this is no word, number, text or sign that is known"
                )
            kind = found.lastgroup or ""
            text = found[kind]
            yield _Token("keyword" if kind == "word" and text.lower() in _WORDS else kind, text, found.start(kind))
            if kind == "end":
                return
            at = found.end()

    def _or(self, negated: bool) -> Condition:
        return self._chain("or", self._and, AllOf if negated else AnyOf, negated)

    def _and(self, negated: bool) -> Condition:
        return self._chain("and", self._not, AnyOf if negated else AllOf, negated)

    def _chain(self, word: str, part: Callable[[bool], Condition], join: type[AllOf] | type[AnyOf], negated: bool) -> Condition:
        parts = [part(negated)]
        while self._takes("keyword", word):
            parts.append(part(negated))
        return parts[0] if len(parts) == 1 else join(tuple(parts))

    def _not(self, negated: bool) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(self._next.at, f"it is nested deeper than {_DEEPEST}")
        try:
            if self._takes("keyword", "not"):
                return self._not(not negated)
            if self._takes("sign", "("):
                inside = self._or(negated)
                self._expect("sign", ")", "')'")
                return inside
            return self._predicate(negated)
        finally:
            self._depth -= 1

    def _predicate(self, negated: bool) -> Condition:
        if self._is_literal():
            value = self._literal()
            operator = _TURNED[self._operator()]
            return Compare(self._column(), _COMPLEMENTS[operator] if negated else operator, value)
        column = self._column()
        if self._takes("keyword", "is"):
            is_not = self._takes("keyword", "not")
            if self._takes("keyword", "null"):
                return IsNull(column, is_not != negated)
            self._expect("keyword", "nan", "null or nan")
            return IsNan(column, is_not != negated)
        if self._takes("keyword", "between"):
            least = self._literal()
            self._expect("keyword", "and", "and")
            most = self._literal()
            if negated:
                return AnyOf((Compare(column, "<", least), Compare(column, ">", most)))
            return AllOf((Compare(column, ">=", least), Compare(column, "<=", most)))
        is_not = self._takes("keyword", "not")
        if self._takes("keyword", "in"):
            return IsIn(column, self._list(), is_not != negated)
        if self._takes("keyword", "like"):
            return self._like(column, is_not != negated)
        if is_not:
            self._refuse(self._next.at, "in or like is expected after not")
        operator = self._operator()
        return Compare(column, _COMPLEMENTS[operator] if negated else operator, self._literal())

    def _list(self) -> tuple[Given, ...]:
        self._expect("sign", "(", "'('")
        values = [self._literal()]
        while self._takes("sign", ","):
            at = self._next.at
            values.append(self._literal())
            if type(values[-1]) is not type(values[0]):
                self._refuse(at, "a list has literals of one kind: all texts, all numbers with or all without a point")
        self._expect("sign", ")", "',' or ')'")
        return tuple(values)

    def _like(self, column: str, negated: bool) -> Condition:
        at, pattern = self._next.at, self._literal()
        if not isinstance(pattern, str) or not pattern.endswith("%") or "%" in pattern[:-1] or "\\" in pattern or "_" in pattern:
            self._refuse(
                at, "after like a beginning is expected: a text whose last character is %, with no other %, _ or \\ in it"
            )
        return BeginsWith(column, pattern[:-1], negated)

    def _column(self) -> str:
        token = self._next
        if token.kind not in ("word", "quoted"):
            self._refuse(
                token.at, "the name of a column is expected (in double quotes if it has other characters than A-Z, 0-9, _)"
            )
        self._index += 1
        return token.text[1:-1] if token.kind == "quoted" else token.text

    def _is_literal(self) -> bool:
        token = self._next
        return token.kind in ("text", "number") or (token.kind == "keyword" and token.text.lower() in ("true", "false"))

    def _literal(self) -> Given:
        token = self._next
        if not self._is_literal():
            self._refuse(token.at, "a literal is expected: a number, true, false, or a text in single quotes")
        self._index += 1
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "keyword":
            return token.text.lower() == "true"
        if len(token.text) > _LONGEST_NUMBER:
            self._refuse(token.at, f"a number of more than {_LONGEST_NUMBER} characters is none that a column can hold")
        return Decimal(token.text) if "." in token.text else int(token.text)

    def _operator(self) -> Operator:
        token = self._next
        if token.text not in _SPELLINGS:
            self._refuse(token.at, "one of =, !=, <, <=, >, >=, in, like, between and is is expected")
        self._index += 1
        return _SPELLINGS[token.text]

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _takes(self, kind: str, text: str) -> bool:
        if self._next.kind == kind and self._next.text.lower() == text:
            self._index += 1
            return True
        return False

    def _expect(self, kind: str, text: str, what: str) -> None:
        if not self._takes(kind, text):
            self._refuse(self._next.at, f"{what} is expected")

    def _refuse(self, at: int, problem: str) -> NoReturn:
        found = f"at {self._text[at : at + 30]!r}" if at < len(self._text) else "at the end"
        raise _refused(f"{found} (character {at + 1}): {problem}")
