"""`checkpointed-write explain`: the text of a reason, as the documentation has it, for people who have no clone."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from checkpoint_control.views.reason_texts import ReasonText, reason_texts
from checkpoint_local.cli.main import main
from checkpoint_protocol.printable import printable


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("name", ["TableMissing", "tablemissing"])
def test_a_reason_is_shown_with_what_to_do(name: str) -> None:
    result = explain(name)

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "TableMissing (The table)"
    assert [line[:12].strip() for line in lines[1:]] == ["seen as", "why", "what to do"]
    assert "The table does not exist" in lines[2]


def test_a_reason_is_shown_as_json() -> None:
    answer = json.loads(explain("TableMissing", "-o", "json").stdout)

    assert list(answer) == ["reason", "subject", "seen", "why", "do"]
    assert (answer["reason"], answer["subject"]) == ("TableMissing", "The table")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("TableMising", "did you mean 'TableMissing'?"), ("Xyz", "`checkpointed-write explain` lists all reasons")],
)
def test_an_unknown_reason_is_an_error_that_says_which_one_was_meant(name: str, hint: str) -> None:
    result = explain(name)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.strip() == f"error: there is no reason {name!r}; {hint}"
    assert explain().exit_code == explain("TableMissing").exit_code == 0


def test_without_a_reason_all_are_listed_with_their_first_sentence() -> None:
    listed = explain().stdout.splitlines()
    answer = json.loads(explain("-o", "json").stdout)

    assert [line.split()[0] for line in listed] == [text.reason for text in reason_texts()]
    assert next(line for line in listed if line.startswith("IdentityChanged")).endswith("checkpoint URI was edited.")
    assert [reason["reason"] for reason in answer["reasons"]] == [text.reason for text in reason_texts()]


@pytest.mark.parametrize("text", reason_texts(), ids=lambda text: text.reason)
def test_each_reason_can_be_shown_whole(text: ReasonText) -> None:
    known = text.model_dump()
    shown = explain(known["reason"]).stdout

    assert all(printable(known[part]) in shown for part in ("reason", "subject", "seen", "why", "do"))
