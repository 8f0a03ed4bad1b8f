"""Daft with checkpointing by `id`, into Iceberg. Runs in Daft's own environment, on its Ray runner: no other can checkpoint."""

import json
import os
import secrets
import sys
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else Ray writes one into the home folder
os.environ["DO_NOT_TRACK"] = "true"

import daft
import ray
from paced import Paced
from pyiceberg.catalog import load_catalog

job = json.loads(Path(sys.argv[1]).read_text())
ray.init(num_cpus=job["cores"], include_dashboard=False, log_to_driver=False, _temp_dir=job["scratch"])
daft.set_runner_ray()
step = Paced(job["row_us"], job["log"])


class _Rows:
    """What the step wants to know of a batch."""

    def __init__(self, count: int) -> None:
        self.num_rows = count


@daft.func.batch(return_dtype=daft.DataType.float64(), batch_size=65_536)
def paced(value):  # type: ignore[no-untyped-def]
    step(_Rows(len(value)))
    return value


table = load_catalog("bench", **job["catalog"]).load_table(job["table"])
store = daft.CheckpointStore("file://" + job["checkpoint"])
rows = daft.read_parquet(job["source"] + "/*.parquet", checkpoint=daft.CheckpointConfig(store=store, on="id"))
rows = rows.with_column("value", paced(rows["value"]))
rows.write_iceberg(table, checkpoint=daft.IdempotentCommit(store=store, idempotence_key="run-1"))
