"""A Ray Data actor with an async step asking a service about each row, into Parquet files. Runs in Ray's own environment.

Several batches of a block are at work in the actor at once, and its calls under one semaphore, so that none waits for the slowest
of a batch. A file is a block: Ray would make two hundred small ones of them, which the actor takes one after the other.
Writes down how long the second of two runs took, from reading to the files: the first, on one file, wakes all that sleeps.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else Ray writes one into the home folder

import ray
from asking import Ask

job = json.loads(Path(sys.argv[1]).read_text())
ray.init(num_cpus=job["cores"], include_dashboard=False, log_to_driver=False, _temp_dir=job["scratch"])
ray.data.DataContext.get_current().enable_progress_bars = False


class Asking:
    def __init__(self, url, at_once):  # type: ignore[no-untyped-def]
        self._step = Ask(url)
        self._at_once = asyncio.Semaphore(at_once)
        self._ready = None

    async def __call__(self, batch):  # type: ignore[no-untyped-def]
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._step.setup())
        await self._ready
        await asyncio.gather(*(self._ask(number) for number in batch["id"].to_pylist()))
        yield batch

    async def _ask(self, number):  # type: ignore[no-untyped-def]
        async with self._at_once:
            await self._step({"id": number})


def run(paths, blocks, output):  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    rows = ray.data.read_parquet(paths, override_num_blocks=blocks)
    rows = rows.map_batches(
        Asking,
        fn_constructor_args=(job["url"], job["at_once"]),
        batch_format="pyarrow",
        batch_size=job["at_once"],
        concurrency=1,
    )
    rows.write_parquet(output, compression="zstd")
    return time.perf_counter() - started


run(f"{job['source']}/00.parquet", 1, job["warm_up_output"])
Path(job["told"]).write_text(str(run(job["source"], job["files"], job["output"])))
