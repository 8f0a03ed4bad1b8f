"""Where the documentation says more of a reason: the path in the repository, which messages and conditions name.

A path and no address, since the documentation is published with the repository only. Short, so that it may follow a message.
"""

from __future__ import annotations

from typing import Final

from checkpoint_protocol import reasons

REASONS_PAGE: Final = "docs/reference/reasons.md"
_DESCRIBED: Final = frozenset(value for name, value in vars(reasons).items() if name.isupper())


def section_of(reason: str) -> str:
    """Return the path of the section of a reason, with the anchor that Markdown gives its heading."""
    return f"{REASONS_PAGE}#{reason.lower()}"


def with_section(reason: str, message: str) -> str:
    """Return a message with the section of its reason behind it, if there is one: words like `Waiting` have none."""
    return f"{message} ({section_of(reason)})" if reason in _DESCRIBED else message
