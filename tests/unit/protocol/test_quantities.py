"""Durations and sizes: what is read, what is refused, and that what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.manifest.quantities import (
    counted,
    format_duration,
    format_share,
    format_size,
    parse_duration_s,
    parse_share_ppm,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h", 3600.0),
        ("1h1m1s", 3661.0),
        ("1h0.5s", 3600.5),
        ("0.5s", 0.5),
        ("0s", 0.0),
        ("120m", 7200.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("1.5m", 90.0),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("30s5m", 330.0),
        ("1s1s", 2.0),
        ("250us", 0.00025),
        ("250\u00b5s", 0.00025),
        ("250\u03bcs", 0.00025),
        ("1500000000ns", 1.5),
        ("0.1ns", 0.0),
        ("2562047h", 9223369200.0),
    ],
)
def test_durations_as_go_writes_them_are_read(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "m5",
        "5 m",
        " 5m",
        "5m ",
        "5m\n",
        "-5m",
        "+5m",
        ".s",
        "1h5",
        "5 ms",
        "2562048h",
        "0" * 46 + "s",
        "1d",
        "5M",
        "1e3s",
        60,
        60.0,
        None,
        True,
        ["5m"],
    ],
)
def test_anything_else_is_no_duration_and_the_message_shows_what_is(text: object) -> None:
    with pytest.raises(ValueError, match=r"a duration such as .* is expected, not "):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1", 1),
        ("64Ki", 64 << 10),
        ("128Mi", 128 << 20),
        ("2Gi", 2 << 30),
        ("1Ti", 1 << 40),
        ("1k", 1_000),
        ("5M", 5_000_000),
        ("1G", 10**9),
        ("1T", 10**12),
        (0, 0),
        (1 << 40, 1 << 40),
        ("1.5Gi", 3 << 29),
        ("2Pi", 2 << 50),
        ("3P", 3 * 10**15),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("1e3", 1_000),
        ("1E3", 1_000),
        ("1.5e3", 1_500),
        (".5", 1),
        ("0.1k", 100),
    ],
)
def test_sizes_as_kubernetes_writes_them_are_read(text: str | int, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "Mi", ".", "1 Mi", "1Mi\n", "-1Mi", "+1Mi", "1MB", "1mi", "1K", "0x10", "1e-3", "1m", "1u", "1n", "1e", 1.0, None, True],
)
def test_anything_else_is_no_size_and_the_message_shows_what_is(text: object) -> None:
    with pytest.raises(ValueError, match=r"a size such as .* is expected, not "):
        parse_size_bytes(text)


@pytest.mark.parametrize("text", ["٣s", "5٣m"])
def test_digits_of_other_scripts_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"a duration such as .* is expected, not "):
        parse_duration_s(text)


def test_digits_of_other_scripts_are_no_size() -> None:
    with pytest.raises(ValueError, match=r"a size such as .* is expected, not "):
        parse_size_bytes("5٣")


def test_a_number_that_no_clock_holds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a duration such as .* is expected, not "):
        parse_duration_s("9" * 400 + "s")


@given(st.integers(0, 10**9))
def test_whole_seconds_are_read_back(seconds: int) -> None:
    assert parse_duration_s(format_duration(float(seconds))) == seconds


@given(st.integers(0, 10**9))
def test_milliseconds_are_read_back(milliseconds: int) -> None:
    assert parse_duration_s(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-6)


def test_a_duration_below_a_millisecond_is_not_written_as_none() -> None:
    assert parse_duration_s(format_duration(0.0004)) == pytest.approx(0.0004)


@given(st.integers(0, 1 << 62))
def test_sizes_are_read_back_exactly(size_bytes: int) -> None:
    assert parse_size_bytes(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (60.0, "1m"), (61.0, "61s"), (7200.0, "2h"), (5400.0, "90m"), (0.25, "0.25s"), (1.5, "1.5s")],
)
def test_durations_are_written_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0"), (1, "1"), (1025, "1025"), (1 << 20, "1Mi"), (3 << 30, "3Gi"), (1 << 40, "1Ti")]
)
def test_sizes_are_written_short(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "ppm"), [("0%", 0), ("0.0001%", 1), ("0.29%", 2_900), ("7%", 70_000), ("12.5%", 125_000), ("100%", 1_000_000)]
)
def test_shares_are_read_as_whole_parts_per_million_and_written_back(text: str, ppm: int) -> None:
    assert parse_share_ppm(text) == ppm
    assert format_share(ppm) == text


@pytest.mark.parametrize("text", ["", "%", "1", "1.%", ".5%", "1.00000%", "100.0001%", "101%", "-1%", "1 %", "١%", 1, 0.5, None])
def test_anything_else_is_no_share_and_the_message_shows_what_is(text: object) -> None:
    with pytest.raises(ValueError, match=r"such as \"0.1%\""):
        parse_share_ppm(text)


@pytest.mark.parametrize(("number", "told"), [(0, "0 rows are"), (1, "1 row is"), (2, "2 rows are"), (12_345, "12,345 rows are")])
def test_what_is_counted_is_one_or_more(number: int, told: str) -> None:
    assert counted(number, "row is", "rows are") == told
    assert counted(number, "row") == " ".join(told.split(" ")[:2])
