"""Source tables of Iceberg whose schema changed between their files, and at every depth, as the judge makes them by chance."""

from __future__ import annotations

from collections import Counter

from tests.judge import iceberg_histories

CASES = range(100, 115)
REWRITTEN = range(200, 202)


def test_each_row_is_read_under_the_names_and_types_of_now_whatever_happened_to_its_file_since() -> None:
    verdicts = Counter[str]()

    for seed in CASES:
        iceberg_histories.judge(seed, verdicts)

    assert verdicts["equal"] == verdicts["equal in part"] == len(CASES)
    assert verdicts["read by DuckDB"] > len(CASES) // 2


def test_an_upsert_of_one_row_that_writes_its_file_anew_keeps_all_other_rows() -> None:
    verdicts = Counter[str]()

    for seed in REWRITTEN:
        iceberg_histories.judge_rewrite(seed, verdicts)

    assert verdicts["equal when rewritten"] == len(REWRITTEN)
