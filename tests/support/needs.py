"""What a machine must have for a test. Without it the test is skipped, or fails where everything is required, as in CI."""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest

VARIABLE: Final = "CHECKPOINTED_WRITES_REQUIRE_ALL"
#: Begins the reason of each such skip, by which the summary finds them.
MARK: Final = "this machine cannot show it: "


def skip(why: str) -> NoReturn:
    if os.environ.get(VARIABLE) == "1":
        pytest.fail(f"{VARIABLE} is set, and {why}", pytrace=False)
    pytest.skip(MARK + why)
