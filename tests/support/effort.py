"""How much is searched for: a sixth of the examples in `make check`, which people wait for; in `make test-all` all there is."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "CHECKPOINTED_WRITES_CHECK"
IS_QUICK: Final = os.environ.get(VARIABLE) == "quick"
IS_WHOLE: Final = os.environ.get(VARIABLE) == "whole"
_SHARE: Final = 6
_LEAST: Final = 10


def examples(wanted: int) -> int:
    """Return how many examples to search, of so many in a whole run."""
    return max(min(wanted, _LEAST), wanted // _SHARE) if IS_QUICK else wanted
