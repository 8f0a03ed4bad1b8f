"""Durations, sizes and shares as people write them in manifests: "90s", "500ms", "1h30m", "128Mi", 1048576, "0.1%".

Durations are Go's, without a sign, and sizes Kubernetes' quantities: who writes manifests for Kubernetes writes these. A duration
without a unit is refused, not guessed.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer

# Bounded, so that no text means infinity, and without the digits of other scripts.
_NUMBER: Final = r"(?:[0-9]{1,19}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
_PART: Final = re.compile(rf"({_NUMBER})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_NUMBER}(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+")
MAX_DURATION_LENGTH: Final = 46
_SIZE: Final = re.compile(rf"({_NUMBER})([KMGTPE]i|[kMGTPE]|[eE][0-9]{{1,2}})?")
MAX_SIZE_LENGTH: Final = 32
_SHARE: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,4}))?%")
_UNITS_NS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
#: As Go's: 292 years.
_MOST_NS: Final = (1 << 63) - 1
_FACTORS: Final = {
    "": 1,
    **{f"{unit}i": 1 << (10 * power) for power, unit in enumerate("KMGTPE", 1)},
    **{unit: 10 ** (3 * power) for power, unit in enumerate("kMGTPE", 1)},
}


def parse_duration_s(text: object) -> float:
    """Return the seconds of "1h30m", "1.5h", "90s" or "500ms", as Go reads them; ValueError for anything else."""
    if isinstance(text, str) and len(text) <= MAX_DURATION_LENGTH and _DURATION.fullmatch(text):
        # What is below a nanosecond is cut off, as there: both must agree on what is nothing.
        total_ns = sum(int(Fraction(number) * _UNITS_NS[unit]) for number, unit in _PART.findall(text))
        if total_ns <= _MOST_NS:
            return total_ns / 10**9
    raise ValueError(f'a duration such as "90s", "500ms", "5m" or "1h30m" is expected, not {text!r}')


def parse_size_bytes(text: object) -> int:
    """Return the bytes of a Kubernetes quantity such as "128Mi", "1.5Gi", "1e6" or 1048576; ValueError for anything else.

    A part of a byte is rounded up, as there. The units of less than one (m, u, n) are refused: 100m would be one byte.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if isinstance(text, str) and len(text) <= MAX_SIZE_LENGTH and (match := _SIZE.fullmatch(text)):
        unit = match[2] or ""
        is_power = len(unit) > 1 and unit[0] in "eE" and unit != "Ei"
        return math.ceil(Fraction(match[1]) * (Fraction(10) ** int(unit[1:]) if is_power else _FACTORS[unit]))
    raise ValueError(f'a size such as "64Mi", "2Gi" or 1048576 is expected, not {text!r}')


def parse_share_ppm(text: object) -> int:
    """Return the parts per million of "0.1%": whole numbers, so that a limit that is made of them is exact."""
    if isinstance(text, str) and (match := _SHARE.fullmatch(text)):
        ppm = int(match[1]) * 10_000 + int((match[2] or "").ljust(4, "0"))
        if ppm <= 1_000_000:
            return ppm
    raise ValueError(f'a share such as "0.1%" is expected, with four decimals and 100% at the most, not {text!r}')


def format_share(ppm: int) -> str:
    """Return the shortest text that parse_share_ppm reads back."""
    whole, rest = divmod(ppm, 10_000)
    return f"{whole}.{rest:04d}".rstrip("0").rstrip(".") + "%"


def format_duration(seconds: float) -> str:
    """Return the shortest text that parse_duration_s reads back."""
    if seconds and seconds == int(seconds):
        whole = int(seconds)
        if whole % 3600 == 0:
            return f"{whole // 3600}h"
        if whole % 60 == 0:
            return f"{whole // 60}m"
        return f"{whole}s"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def format_size(size_bytes: int) -> str:
    """Return the shortest binary quantity that parse_size_bytes reads back exactly."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        factor = _FACTORS[unit]
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)


Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s, json_schema_input_type=str),
    PlainSerializer(format_duration, return_type=str),
    Field(ge=0),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size_bytes, json_schema_input_type=int | str),
    PlainSerializer(format_size, return_type=str),
    Field(ge=0, lt=1 << 63),
]
#: Parts per million.
Share = Annotated[
    int,
    BeforeValidator(parse_share_ppm, json_schema_input_type=str),
    PlainSerializer(format_share, return_type=str),
    Field(ge=0, le=1_000_000),
]


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return "1 file" or "2 files"; "1 row is" or "2 rows are" where `more` is given."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"
