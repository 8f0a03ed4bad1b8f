from embedding import embed

import checkpointed_writes as cw


def with_vector(row):
    return {**row, "vector": embed(row["text"])}


write = cw.read_parquet("texts/").step(with_vector).write_lance("texts.lance", vectors={"vector": 5})
write.run()
