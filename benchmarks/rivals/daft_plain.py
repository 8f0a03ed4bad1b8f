"""A step that takes no time over all rows, into Iceberg, on Daft's own runner. Runs in Daft's own environment."""

import json
import os
import sys
from pathlib import Path

os.environ["DO_NOT_TRACK"] = "true"

import daft
from paced import Paced
from pyiceberg.catalog import load_catalog

job = json.loads(Path(sys.argv[1]).read_text())
step = Paced(0)


class _Rows:
    """What the step wants to know of a batch."""

    def __init__(self, count: int) -> None:
        self.num_rows = count


@daft.func.batch(return_dtype=daft.DataType.float64(), batch_size=65_536)
def paced(value):  # type: ignore[no-untyped-def]
    step(_Rows(len(value)))
    return value


rows = daft.read_parquet(job["source"] + "/*.parquet")
rows.with_column("value", paced(rows["value"])).write_iceberg(load_catalog("bench", **job["catalog"]).load_table(job["table"]))
