"""Texts as files have them, and whether a value is what a text says: the rule of the judge for CSV and JSON lines."""

from __future__ import annotations

import datetime
import json
import math
import random
import re
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

_LARGEST: Final = 2**53

_STRINGS: Final = (
    *(
        "",
        "a",
        " a ",
        "ä" * 16,
        "𝒳",
        "null",
        "NULL",
        "NaN",
        "true",
        "\\N",
        "\\",
        '"',
        "'",
        ",",
        ";",
        "\t",
        "#",
        "\u2028",
        "\ufeff",
    ),
    *("1", "1.0", "007", "2024-01-05", "2024-01-05T10:30:00Z", "x" * 300, "-", "1e5", "\\n", "\x7f", "{}", "[1]", "a\\", "é"),
)
#: By what kind a column looks like: its texts, and a few that are not quite of the kind.
_KINDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "integers": (
        ("0", "-7", "12", "9223372036854775807", "-9223372036854775808"),
        ("007", "+4", "-0", "9223372036854775808", "1_0"),
    ),
    "large integers": (("9223372036854775808", "1", str(10**37)), (str(10**38), str(-(10**38)), "0x1")),
    "numbers": (
        ("1.5", "-2.25", "0.5", "2", "1e-05", "1.5E7", "nan"),
        ("0.1000000000000000055", "1e400", ".5", "5.", "1e5", "9007199254740993", "-0.0", "inf", "1,5", "1e-400"),
    ),
    "amounts": (("1.50", "2.25", "10.00"), ("3.1", "3.100", "12345678901234567.25")),
    "truths": (("true", "false"), ("True", "T", "yes", "0")),
    "days": (("2024-01-05", "0001-01-01", "9999-12-31"), ("2024-1-5", "2024-02-30", "20240105", "10000-01-01")),
    "times": (
        ("2024-01-05 10:30:00", "1969-12-31 23:59:59.5", "2024-01-05T10:30:00.000001"),
        (
            "2024-01-05",
            "2024-01-05 10:30:00.1234567",
            "2024-01-05 25:00:00",
            "2024-01-05T10:30:00Z",
            "9999-12-31 23:59:59.999999999",
        ),
    ),
    "moments": (
        ("2024-01-05T10:30:00Z", "2024-01-05T10:30:00+00:00", "1969-12-31T00:00:00.25Z"),
        ("2024-01-05T10:30:00+02:00", "2024-01-05T10:30:00", "2024-01-05T10:30:00-00:00"),
    ),
    "strings": (_STRINGS, _STRINGS),
}


def texts_of(of: random.Random, rows: int) -> list[str]:
    """Return the texts of a column: of one kind, and often with one or two that are only near."""
    usual, odd = _KINDS[of.choice(list(_KINDS))]
    texts = [of.choice(usual) for _ in range(rows)]
    for _ in range(of.choice([0, 0, 1, 2])):
        texts[of.randrange(rows)] = of.choice([*odd, of.choice(_STRINGS)])
    return texts


def says(text: str, got: Any, kind: pa.DataType, *, is_exact: bool = True) -> bool:
    """Whether a value of a column of type `kind` is what the text says; `is_exact`: and whether the text can be told from it.

    Of numbers with a point, the nearest double is the value.
    """
    if isinstance(got, bool):
        return text.lower() == str(got).lower()
    if isinstance(got, str):
        return got == text
    if isinstance(got, int):
        return _is_number(text) and Decimal(text) == got and (not is_exact or text == str(got))
    if isinstance(got, Decimal):
        return _is_number(text) and Decimal(text) == got
    if isinstance(got, float):
        return _says_float(text, got)
    if isinstance(got, datetime.datetime):
        return _says_time(text, got, kind)
    return isinstance(got, datetime.date) and text == got.isoformat()


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None


def _says_float(text: str, got: float) -> bool:
    if text.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return math.isnan(got) if text.lower() == "nan" else got == float(text)
    if not _is_number(text) or not math.isfinite(got):
        return False
    is_whole = re.fullmatch(r"[+-]?\d+", text) is not None
    if is_whole and abs(int(text)) > _LARGEST and int(text) != got:
        return False
    return float(text) == got and math.copysign(1, float(text)) == math.copysign(1, got)


def _says_time(text: str, got: datetime.datetime, kind: pa.DataType) -> bool:
    digits = re.search(r"\.(\d+)", text)
    nanoseconds = int((digits.group(1) if digits else "0").ljust(9, "0")[:9])
    if len(digits.group(1) if digits else "") > 9 or nanoseconds != got.microsecond * 1000 + int(getattr(got, "nanosecond", 0)):
        return False
    try:
        said = datetime.datetime.fromisoformat(re.sub(r"\.\d+", "", text))
    except ValueError:
        return False
    # Of nanoseconds, Arrow gives a Timestamp of pandas.
    found = datetime.datetime(got.year, got.month, got.day, got.hour, got.minute, got.second, tzinfo=got.tzinfo)
    return (said.tzinfo is None) == (kind.tz is None) and said == found


# --- JSON -----------------------------------------------------------------------------------------------------------------


class Literal(str):
    """A number as it is spelled."""


_INTEGERS: Final = (
    "0",
    "1",
    "-1",
    "-0",
    "9223372036854775807",
    "-9223372036854775808",
    "9007199254740993",
    "18446744073709551615",
)
_POINTS: Final = ("1.5", "1.0", "-0.0", "1e5", "1E-7", "0.1000000000000000055", "1e308", "12345678901234567.5", "1.10")
_FAR: Final = ("1e400", "1e-400", str(10**38), str(10**45), "-1e400")
_SHAPES: Final = (
    "integer",
    "point",
    "number",
    "number",
    "far",
    "truth",
    "text",
    "truth",
    "text",
    "text",
    "list",
    "object",
    "object",
)


def shape_of(of: random.Random, depth: int) -> Any:
    """Return what the values of a field have in common."""
    shape = of.choice(_SHAPES if depth else _SHAPES[:-3])
    if shape == "list":
        return [shape_of(of, depth - 1)]
    if shape == "object":
        return {
            name: shape_of(of, depth - 1)
            for name in of.sample(("a", "b", "A", "a.b", ".a", "", "größe", '"', "𝒳"), of.randint(1, 3))
        }
    return shape


def value_of_shape(of: random.Random, shape: Any) -> Any:
    if of.random() < 0.2:
        return None
    match shape:
        case list():
            return [value_of_shape(of, shape[0]) for _ in range(of.randint(0, 3))]
        case dict():
            return {name: value_of_shape(of, part) for name, part in shape.items() if of.random() < 0.8}
        case "integer":
            return Literal(of.choice(_INTEGERS))
        case "point":
            return Literal(of.choice(_POINTS))
        case "number":
            return Literal(of.choice(_INTEGERS + _POINTS))
        case "far":
            return Literal(of.choice(_FAR + _INTEGERS[:2]))
        case "truth":
            return of.random() < 0.5
    if of.random() < 0.02:
        return of.choice([True, Literal("7"), [], {}])
    return of.choice(_STRINGS)


def spelled(of: random.Random, value: Any) -> str:
    """Return a value as JSON, in one of the ways that say the same."""
    space = of.choice(["", "", " ", "\t"])
    match value:
        case Literal():
            return str(value)
        case str():
            text = json.dumps(value, ensure_ascii=of.random() < 0.5)
            return text.replace("/", "\\/") if of.random() < 0.5 else text
        case list():
            return f"[{space}" + f"{space},".join(spelled(of, part) for part in value) + f"{space}]"
        case dict():
            parts = [f"{json.dumps(name)}{space}:{space}{spelled(of, part)}" for name, part in value.items()]
            of.shuffle(parts)
            return f"{{{space}" + f",{space}".join(parts) + f"{space}}}"
    return json.dumps(value)


def is_text_of_json(given: Any, got: Any, kind: pa.DataType) -> bool:
    """Whether a column of strings has a string as it is, and the text of every other value of JSON as the file has it."""
    if given is None or got is None or (isinstance(given, str) and not isinstance(given, Literal)):
        return bool(given == got)
    return isinstance(got, str) and _has_all(given, json.loads(got, parse_int=Literal, parse_float=Literal))


def _has_all(given: Any, found: Any) -> bool:
    if isinstance(given, dict):
        return (
            isinstance(found, dict) and given.keys() == found.keys() and all(_has_all(given[name], found[name]) for name in given)
        )
    if isinstance(given, list):
        return isinstance(found, list) and len(given) == len(found) and all(map(_has_all, given, found))
    return type(given) is type(found) and given == found


def is_same_json(given: Any, got: Any, kind: pa.DataType) -> bool:
    """Whether what a reader found is what a value of JSON is; a field that is not there is NULL."""
    if given is None or got is None:
        return given is None and got is None
    match given:
        case Literal():
            return not isinstance(got, bool | str) and says(given, got, kind, is_exact=False)
        case bool() | str():
            return type(got) is type(given) and got == given
        case list():
            return (
                isinstance(got, list)
                and len(got) == len(given)
                and all(is_same_json(one, other, kind.value_type) for one, other in zip(given, got, strict=True))
            )
        case dict():
            names = [field.name for field in kind] if pa.types.is_struct(kind) else []
            return (
                isinstance(got, dict)
                and set(given) <= set(names)
                and all(is_same_json(given.get(field.name), got[field.name], field.type) for field in kind)
            )
    return False
