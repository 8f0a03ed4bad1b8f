"""What steers a terminal, or hides, is shown as an escape; everything else stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from checkpoint_protocol.printable import printable, printable_json, printable_model


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]52;c;ZXZpbA==\x07", r"\x1b]52;c;ZXZpbA==\x07"),
        ("a\rb\x08\x00", r"a\x0db\x08\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("\x7f", r"\x7f"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("\u2066x\u2069\u200f", r"\u2066x\u2069\u200f"),
        ("a\u2028b", r"a\u2028b"),
        ("\ufeffa\u200b", r"\ufeffa\u200b"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_a_terminal_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["größe und maß", "二\t三\n四", "👩\u200d💻", "نمی\u200cخواهم", r"C:\x1b", ""])
def test_text_of_people_stays(text: str) -> None:
    assert printable(text) == text
    assert printable_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)


@given(st.text())
def test_json_says_the_same_and_prints(text: str) -> None:
    shown = printable_json(json.dumps(text, ensure_ascii=False))

    assert json.loads(shown) == text
    assert printable(shown) == shown
    assert printable(printable(text)) == printable(text)


class _Inner(BaseModel):
    names: tuple[str, ...]
    by_name: dict[str, str]


class _Outer(BaseModel):
    number: int
    inner: _Inner
    text: str | None = None


def test_a_model_is_printable_at_every_depth() -> None:
    model = _Outer(number=1, inner=_Inner(names=("\x1b", "a"), by_name={"\x1b": "\x9b"}))

    shown = printable_model(model)

    assert shown == _Outer(number=1, inner=_Inner(names=(r"\x1b", "a"), by_name={r"\x1b": r"\x9b"}))


class _Said(BaseModel):
    name: str
    message: str


class _All(BaseModel):
    said: tuple[_Said, ...]


def test_only_messages_are_masked_as_names_are_read_back() -> None:
    model = _All(said=(_Said(name="geheim-1", message="geheim-1 \x1b"),))

    assert printable_model(model, lambda text: text.replace("geheim", "***")) == _All(
        said=(_Said(name="geheim-1", message=r"***-1 \x1b"),)
    )
