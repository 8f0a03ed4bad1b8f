from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from embedding import embed
from metaflow import FlowSpec, step


class Texts(FlowSpec):
    @step
    def start(self):
        self.files = sorted(str(file) for file in Path("texts").glob("*.parquet"))
        self.next(self.embed, foreach="files")

    @step
    def embed(self):
        rows = pq.read_table(self.input)
        vectors = [embed(text) for text in rows["text"].to_pylist()]
        self.rows = rows.append_column("vector", pa.array(vectors, pa.list_(pa.float32(), 5)))
        self.next(self.write)

    @step
    def write(self, inputs):
        lance.write_dataset(pa.concat_tables([each.rows for each in inputs]), "texts.lance", mode="overwrite")
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    Texts()
