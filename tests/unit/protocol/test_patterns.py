"""Names with * and ?, in paths of sources and in grants: who writes them, and the names, must not be able to stop the process."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint_protocol.places.patterns import is_named, is_wild, split, wildcards


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
@example("*ab*ba", "aaba")
@example("a*a", "a")
def test_a_name_fits_as_it_would_if_each_place_were_tried(pattern: str, name: str) -> None:
    tried = re.fullmatch(pattern.replace("*", ".*").replace("?", "."), name)

    assert (wildcards(pattern).fullmatch(name) is not None) == (tried is not None)


def test_many_stars_take_no_longer_than_a_few() -> None:
    # With each place tried, for each of the stars, this does not end; and nothing else in the process runs meanwhile.
    _, pattern = split("s3://lake/" + "*a" * 200 + "*b")

    assert not pattern.matches(["lake", "a" * 1000])
    assert not is_named("a" * 512, ["*a" * 100 + "*b"])
    assert is_named("a" * 512 + "b", ["*a" * 100 + "*b"])


def test_folders_of_any_number_several_times_are_any_number_once() -> None:
    _, many = split("**/" * 300 + "x.csv")
    _, once = split("**/x.csv")

    assert many == once
    assert many.matches(["a", "b", "x.csv"])
    assert many.matches(["x.csv"])


@pytest.mark.parametrize(
    ("path", "name", "others"),
    [
        ("in/a[*].csv", "a*.csv", ["ab.csv", "a[*].csv"]),
        ("in/a[?].csv", "a?.csv", ["ab.csv"]),
        ("in/[[]*].csv", "[*].csv", ["*.csv"]),
        ("in/a[0-9].csv", "a[0-9].csv", ["a1.csv"]),
        ("in/[*]*.csv", "*b.csv", ["ab.csv"]),
        ("in/[?]?.csv", "?b.csv", ["ab.csv", "?.csv"]),
        ("in/[[]?", "[b", ["ab"]),
    ],
)
def test_a_character_in_brackets_is_itself_and_no_wildcard(path: str, name: str, others: list[str]) -> None:
    folder, pattern = split(path)
    if is_wild(path):
        assert folder == "in"
        assert pattern.matches([name])
        assert not any(pattern.matches([other]) for other in others)
    else:
        assert (folder, pattern.segments) == (f"in/{name}", ())


def test_in_a_grant_brackets_are_brackets() -> None:
    assert is_named("a[b]", ["a[*]"])
    assert not is_named("a*", ["a[*]"])
