"""Which types texts have: what cannot be written back is a string."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint_protocol.rows.text_types import Inferred, TextColumn, is_held


def infer(*texts: str) -> Inferred:
    column = TextColumn()
    column.add(texts)
    return column.infer()


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-7", "0"], "int64"),
        (["004", "5"], "string"),
        (["00501"], "string"),
        (["+49301234"], "string"),
        ([" 5"], "string"),
        (["5 "], "string"),
        (["-0"], "string"),
        (["1_000"], "string"),
        (["0x10"], "string"),
        (["٣"], "string"),
        (["9007199254740993"], "int64"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808", "1"], "decimal(38,0)"),
        (["1" * 38], "decimal(38,0)"),
        (["1" * 39, "2"], "string"),
        # doubles
        (["1", "1.5"], "double"),
        (["1.0", "2.25", "-0.0"], "double"),
        (["0.30000000000000004"], "double"),
        (["0.300000000000000041"], "string"),
        (["3.14159265358979323846"], "string"),
        (["9007199254740992", "1.5"], "double"),
        (["9007199254740993", "1.5"], "string"),
        (["1.5", "9007199254740994"], "string"),
        (["1.5", "12345678901234567891"], "string"),
        ([".5"], "string"),
        (["5."], "string"),
        (["01.5"], "string"),
        (["1,5"], "string"),
        # zeros at the end
        (["1.50", "2.00"], "double"),
        (["3.9", "3.10", "3.11"], "string"),
        (["1.50", "2"], "string"),
        (["1.00", "1.5e-07"], "double"),
        # exponents
        (["12E45"], "string"),
        (["1e5"], "string"),
        (["1E10", "7"], "string"),
        (["12e4567"], "string"),
        (["1e-05", "1.5E7", "1e+16"], "double"),
        (["1.5e400"], "string"),
        (["1.5e-400"], "string"),
        (["5e-324"], "double"),
        # what is no number
        (["NaN"], "string"),
        (["nan", "1.5"], "double"),
        (["-inf", "1"], "double"),
        (["Nan", "1.5"], "string"),
        # truth
        (["true", "false"], "bool"),
        (["TRUE", "FALSE"], "bool"),
        (["True", "false"], "string"),
        (["T", "F"], "string"),
        (["1", "0"], "int64"),
        (["1", "true"], "string"),
        # days and times
        (["2024-01-05"], "date"),
        (["2024-1-5"], "string"),
        (["20240105"], "int64"),
        (["2024-02-30"], "string"),
        (["0000-01-01"], "string"),
        (["2024-01-01", "2024-01-01 10:00"], "timestamp[us]"),
        (["2024-01-01T10:00:00.123456"], "timestamp[us]"),
        (["2024-01-01T10:00:00.1234567"], "timestamp[ns]"),
        (["2024-01-01T10:00:00.1234567", "9999-12-31"], "string"),
        (["9999-12-31 23:59:59", "0001-01-01"], "timestamp[us]"),
        (["2024-01-01T10:00:00Z", "2024-01-01 10:00+00:00"], "timestamp[us, UTC]"),
        (["2024-01-01T10:00:00.000000001Z"], "timestamp[ns, UTC]"),
        (["2024-01-01T10:00:00+02:00"], "string"),
        (["2024-01-01T10:00:00-00:00"], "string"),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"], "string"),
        (["2024-01-01T24:00:00"], "string"),
        (["2024-01-01 10"], "string"),
        (["10:30"], "string"),
        (["10:30:15.5"], "string"),
        (["2024-01-01", "7"], "string"),
        # text
        (["x", "1"], "string"),
        ([""], "string"),
        ([], "string"),
    ],
)
def test_the_type_of_texts_is_one_of_which_they_can_be_written_back(texts: list[str], kind: str) -> None:
    assert infer(*texts).type == kind
    assert infer(*reversed(texts)).type == kind


@pytest.mark.parametrize(
    ("texts", "decided", "why"),
    [
        (["12", "00501", "x"], "00501", "no number that can be written back"),
        (["12", "x"], "x", "is text"),
        (["10:30"], "10:30", "never inferred"),
        (["1.5", "9007199254740993"], "9007199254740993", "beside '1.5'"),
        (["3.9", "3.10"], "3.10", "'3.9' has another number of digits"),
        (["2024-01-01", "7"], "7", "beside '2024-01-01'"),
        (["2024-01-01T10:00:00+02:00"], "2024-01-01T10:00:00+02:00", "zone other than UTC"),
        (["2024-1-5"], "2024-1-5", "no date or time that can be written back"),
        (["1", "2", "2.5"], "2.5", "is one"),
        (["2024-01-01", "2024-01-01 10:00"], "2024-01-01 10:00", "is one"),
        (["True", "false"], "false", "beside 'True'"),
        (["NaN"], "NaN", "no number by itself"),
        ([], None, "no value"),
    ],
)
def test_the_text_that_decided_is_told_with_why(texts: list[str], decided: str | None, why: str) -> None:
    inferred = infer(*texts)
    assert inferred.text == decided
    assert why in inferred.why


_numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[+-]?[0-9]{1,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True).map(str.strip),
)


@given(st.lists(_numbers, min_size=1, max_size=3))
def test_a_number_that_is_inferred_is_the_one_that_is_written(texts: list[str]) -> None:
    kind = infer(*texts).type
    for text in texts:
        assert is_held(text, kind)
        if kind == "int64":
            assert str(int(text)) == text
            assert -(1 << 63) <= int(text) < 1 << 63
        elif kind == "double":
            assert Decimal(repr(float(text))) == Decimal(text)


@given(st.lists(st.floats().map(repr), min_size=1))
def test_floats_as_python_writes_them_are_doubles(texts: list[str]) -> None:
    is_number = any(text not in ("nan", "inf", "-inf") for text in texts)
    assert infer(*texts).type == ("double" if is_number else "string")
