"""`checkpointed-write explain`: what a reason in a message or a status means, and what to do."""

from __future__ import annotations

from pydantic import Field

from checkpoint_control.views.inspected import Shown
from checkpoint_control.views.reason_texts import ReasonText, reason_texts
from checkpoint_local.cli import exits
from checkpoint_local.cli.printing import answers, messages, print_data, say_problem
from checkpoint_protocol.manifest.problems import closest


class ReasonTexts(Shown):
    """All reasons."""

    reasons: tuple[ReasonText, ...] = Field(description="In the order of the documentation.")


def explain_command(reason: str | None, output: str) -> int:
    """Show the text of a reason, or list all reasons, and return the exit code."""
    texts = reason_texts()
    if reason is None:
        if output == "table":
            _print_all(texts)
        else:
            print_data(ReasonTexts(reasons=texts), output)
        return exits.DONE
    found = next((text for text in texts if text.reason.casefold() == reason.casefold()), None)
    if found is None:
        meant = closest(reason, [text.reason for text in texts])
        hint = f"did you mean {meant!r}?" if meant else "`checkpointed-write explain` lists all reasons"
        say_problem(messages(), f"error: there is no reason {reason!r}; {hint}")
        return exits.MANIFEST_WRONG
    if output == "table":
        _print(found)
    else:
        print_data(found, output)
    return exits.DONE


def _print(text: ReasonText) -> None:
    out = answers()
    out.print(f"{text.reason} ({text.subject})", style="bold", markup=False)
    for title, said in (("seen as", text.seen), ("why", text.why), ("what to do", text.do)):
        out.print(f"  {title:<10}  {said}", markup=False)


def _print_all(texts: tuple[ReasonText, ...]) -> None:
    out, width = answers(), max(len(text.reason) for text in texts)
    for text in texts:
        sentence, point, _ = text.why.partition(". ")
        out.print(f"{text.reason:<{width}}  {sentence}{point}".rstrip(), markup=False)
