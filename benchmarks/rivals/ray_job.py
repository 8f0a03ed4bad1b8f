"""Ray Data with checkpointing by `id`. Runs in Ray's own environment; imports nothing of this project but the step.

Into Parquet files by default, where each write task commits by itself. Into Iceberg only with the old reader: the new one's
internal column reaches the table's schema, and pyiceberg refuses it.
"""

import json
import os
import secrets
import sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text())
into_iceberg = job["sink"] == "iceberg"
if into_iceberg:
    os.environ["RAY_DATA_USE_DATASOURCE_V2"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else Ray writes one into the home folder

import ray  # noqa: E402 - reads its settings when it is imported
from paced import Paced  # noqa: E402
from ray.data.checkpoint import CheckpointConfig  # noqa: E402

ray.init(num_cpus=job["cores"], include_dashboard=False, log_to_driver=False, _temp_dir=job["scratch"])
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
context.checkpoint_config = CheckpointConfig(
    id_column="id", checkpoint_path=job["checkpoint"], delete_checkpoint_on_success=False
)
step = Paced(job["row_us"], job["log"])
rows = ray.data.read_parquet(job["source"], **({"override_num_blocks": job["files"]} if into_iceberg else {}))
rows = rows.map_batches(lambda batch: step(batch), batch_format="pyarrow", batch_size=65_536)
if into_iceberg:
    rows.write_iceberg(job["table"], catalog_kwargs={"name": "bench", **job["catalog"]})
else:
    rows.write_parquet(job["output"], compression="zstd")
