"""A key of the row that a step is called with: the same in every attempt, for services that take one (an idempotency key)."""

from __future__ import annotations

import hashlib
import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from checkpoint_work.steps.places import Place

_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row that a step is called with. `write`: whose it is.

    `number`: of its source row in its batch; None where a batch step has made it. `ordinal`: which of the rows it is that the row
    steps before have made of that one. `memo`: under which the result of its call is kept; None: it is not.
    """

    write: str
    step: str
    place: Place
    number: int | None
    ordinal: int
    memo: str | None = None

    def key(self) -> str:
        if self.number is None:
            raise RuntimeError(
                "row_key(): a batch step has made this row, so its source row is not known; call row_key() in a row step before "
                "that one, and pass the key on as a column"
            )
        named = [self.write, self.step, *self.place.identity_of(self.number), self.ordinal]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:_DIGITS]


#: Of the call that is made here. Each task of an event loop has its own, and a thread that is begun for a call has the call's.
current: ContextVar[NamedRow | None] = ContextVar("current_row", default=None)


def row_key() -> str:
    """Return the key of the row that the calling step has been given: 32 hexadecimal digits. RuntimeError if there is none."""
    named = current.get()
    if named is None:
        raise RuntimeError("row_key() is for row steps, while they are called: not for batch steps, setup() or other threads")
    return named.key()
