"""A step with a rate limit, asking a service that refuses 5 % of the calls with 429 and Retry-After: calls a second / the limit.

The service counts, from the first call to the last one; what it refused, and what was made again for that, are calls too. All
rows have to be in the table. One task, in a process that is running, as in `service-step`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks import outputs, plain_spark
from benchmarks.bench import Bench
from benchmarks.checkpointed import Lake, iceberg, run_in
from benchmarks.http_service import Counts, counts, serving
from benchmarks.inputs import Input
from benchmarks.pairs import OutputsDiffer, ratio_of
from benchmarks.results import Result, with_ratio

_LATENCY_S: Final = 0.05
_REFUSED: Final = 0.05
_AT_ONCE: Final = 64
#: The second is what one task of a write may have that has many.
_LIMITS: Final = (("service-limit", 400, 20_000), ("service-limit-low", 20, 1_200))
_WITHIN: Final = 0.1


def measure(bench: Bench) -> Iterator[Result]:
    lake = Lake(bench.folder / "lake")
    with plain_spark.session(bench.folder / "plain", 1) as spark:
        for figure, calls_per_s, rows in _LIMITS:
            source = bench.input(rows, small_rows=rows // 10)
            rates, again = [], []
            for number in range(1, bench.rounds + 1):
                with serving(_LATENCY_S, _REFUSED) as url:
                    step = {
                        "call": "asking:Ask",
                        "input": "row",
                        "arguments": {"url": url},
                        "concurrency": _AT_ONCE,
                        "rateLimit": {"calls": calls_per_s, "per": "1s"},
                    }
                    table = lake.make_table(source.schema)
                    manifest = lake.manifest(source, iceberg(table), {"interval": "5s", "minimumBytes": "1"}, steps=[step])
                    run_in(spark, manifest, lake.settings, 1)
                    sent = counts(url)
                _check(outputs.of_iceberg(table), source, sent, calls_per_s)
                rates.append(round(sent.requests / sent.seconds, 2))
                again.append(sent.refused)
                bench.say(f"round {number}: {rates[-1]:.1f} calls a second of {calls_per_s}, {sent.refused:,} refused")
            about = (
                f"{source.rows:,} rows, a call each, by one task, at most {calls_per_s} calls a second; a service of 50 ms "
                f"answers {_REFUSED:.0%} of the calls with 429 and Retry-After: calls a second / {calls_per_s}"
            )
            ratio, raw = ratio_of(rates, [float(calls_per_s)] * len(rates)), {"calls_per_s": rates, "refused": again}
            yield with_ratio(figure, about, ratio, 1 - _WITHIN, len(rates), at_least=True, raw=raw)


def _check(found: outputs.Content, source: Input, sent: Counts, calls_per_s: float) -> None:
    expected = outputs.of_files(source.files)
    if found != expected or sent.paths != source.rows or sent.requests != source.rows + sent.refused:
        raise OutputsDiffer(f"{found} is in the table, and expected was {expected}; the service was sent {sent}")
    if sent.requests > calls_per_s * (1 + _WITHIN) * sent.seconds:
        raise OutputsDiffer(f"the limit is {calls_per_s} calls a second, and the service was sent {sent}")
