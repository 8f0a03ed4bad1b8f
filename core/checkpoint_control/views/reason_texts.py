"""What is known of each reason: how it shows, why it comes up, and what to do.

`checkpointed-write explain` prints it, and messages and conditions name that command: an installed package has no documents.
The documentation has a page that is made of the same file.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

import yaml
from pydantic import Field

from checkpoint_control.views.inspected import Shown
from checkpoint_protocol import reasons

_DESCRIBED: Final = frozenset(value for name, value in vars(reasons).items() if name.isupper())


class ReasonText(Shown):
    """A reason, explained."""

    reason: str
    subject: str = Field(description="What it is about, e.g. The store.")
    seen: str = Field(description="How it shows.")
    why: str = Field(description="What has happened.")
    do: str = Field(description="What to do.")


def reason_texts() -> tuple[ReasonText, ...]:
    """Return the text of each reason, in the order of the documentation."""
    by_subject = yaml.safe_load(resources.files("checkpoint_protocol").joinpath("reasons.yaml").read_text(encoding="utf-8"))
    return tuple(
        ReasonText(reason=reason, subject=subject, **texts)
        for subject, members in by_subject.items()
        for reason, texts in members.items()
    )


def with_command(reason: str, message: str) -> str:
    """Return a message with the command behind it that explains its reason: words like `Waiting` have none.

    Short, so that it may follow a message in a status.
    """
    return f"{message} (more: checkpointed-write explain {reason})" if reason in _DESCRIBED else message
