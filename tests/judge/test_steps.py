"""No step and no stager changes a value without a word: random columns, and readers that share no code with the product."""

from collections import Counter
from typing import Any

import pytest

from tests.judge.steps import judge
from tests.support.slow import slow_except

_BLOCK = 500

#: Seeds that were red once. `python -m tests.judge.steps` names new ones.
_ONCE_RED = {
    403: "required UUIDs in a map below a NULL struct: all were NULL in the Parquet file",
    2599: "a value that is a scalar of Arrow",
    3124: "a list of structs that Lance, by itself, cannot read again",
}


@pytest.mark.parametrize("first", slow_except(range(0, 20_000, _BLOCK), *range(0, 3_000, _BLOCK)))
def test_a_value_of_a_step_is_read_again_as_it_was_given_or_refused(first: Any) -> None:
    verdicts = Counter[str]()

    judge(first, _BLOCK, verdicts)

    assert verdicts["equal"] + verdicts["refused"] == _BLOCK
    assert verdicts["equal"] > _BLOCK / 2  # what is refused says nothing about values
    assert verdicts["read back (iceberg)"] > _BLOCK / 2
    assert verdicts["read back (lance)"] > _BLOCK / 4


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"{seed}: {what}") for seed, what in _ONCE_RED.items()])
def test_a_case_that_was_red_once_is_not_red_again(seed: Any) -> None:
    judge(seed, 1, Counter[str]())
