"""Durations, sizes and shares as people write them in manifests: "90s", "5m", "128Mi", "0.1%"."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer

# Bounded, so that no text means infinity, and without the digits of other scripts.
_DURATION: Final = re.compile(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,15}(?:\.[0-9]{1,9})?)s)?")
_SIZE: Final = re.compile(r"([0-9]{1,19})(Ki|Mi|Gi|Ti|k|M|G|T)?")
_SHARE: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,4}))?%")
_FACTORS: Final = {
    None: 1,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}


def parse_duration_s(text: object) -> float:
    """Return the seconds of "1h30m", "90s" or "0.5s"; ValueError for anything else."""
    if isinstance(text, str) and text and (match := _DURATION.fullmatch(text)):
        hours, minutes, seconds = match.groups()
        return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)
    raise ValueError(f'a duration such as "90s", "5m" or "1h30m" is expected, not {text!r}')


def parse_size_bytes(text: object) -> int:
    """Return the bytes of a Kubernetes quantity such as "128Mi"; ValueError for anything else."""
    if isinstance(text, str) and (match := _SIZE.fullmatch(text)):
        return int(match[1]) * _FACTORS[match[2]]
    raise ValueError(f'a size such as "64Mi" or "2Gi" is expected, not {text!r}')


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
    BeforeValidator(parse_size_bytes, json_schema_input_type=str),
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
