from pathlib import Path

import dlt
import pyarrow as pa
import pyarrow.parquet as pq
from embedding import embed


@dlt.resource
def texts():
    for file in sorted(Path("texts").glob("*.parquet")):
        rows = pq.read_table(file)
        vectors = [embed(text) for text in rows["text"].to_pylist()]
        yield rows.append_column("vector", pa.array(vectors, pa.list_(pa.float32(), 5)))


pipeline = dlt.pipeline("texts", destination="lance", dataset_name="vectors")
print(pipeline.run(texts()))
