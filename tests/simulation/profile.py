"""How long the simulation searches: a minute by default, the same each time; as long as wanted, and at random, on request.

CHECKPOINTED_WRITES_SIMULATION=long            twenty times the examples, from new seeds
CHECKPOINTED_WRITES_SIMULATION=long:50         as many times as is said
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, Phase, settings

from tests.support.effort import examples

VARIABLE: Final = "CHECKPOINTED_WRITES_SIMULATION"
_WORD, _, _TIMES = os.environ.get(VARIABLE, "").partition(":")

IS_LONG: Final = _WORD == "long"
FACTOR: Final = int(_TIMES or 20) if IS_LONG else 1


def searching(wanted: int) -> settings:
    """Return settings for so many examples in the default profile. Nothing is remembered between runs."""
    return settings(
        max_examples=examples(wanted) * FACTOR,
        derandomize=not IS_LONG,
        database=None,
        deadline=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example),
    )
