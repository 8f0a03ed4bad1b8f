import daft
from daft import DataType
from embedding import embed

vector_of = daft.func(embed, return_dtype=DataType.embedding(DataType.float32(), 5))
rows = daft.read_parquet("texts/*.parquet")
rows.with_column("vector", vector_of(rows["text"])).write_lance("texts.lance")
