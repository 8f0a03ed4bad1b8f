import datachain as dc
from embedding import embed

dc.read_parquet("texts/*.parquet").map(vector=embed, params="text").save("texts")
