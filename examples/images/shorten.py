"""A step for rows that are there: a shorter vector for each, for a search that looks at less."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

LENGTH = 8


class Shorten:
    """A batch step. With `sink.mode: AddColumns` it gives one row for each that it gets, in the same order."""

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        vectors = np.stack(rows["vector"].to_numpy(zero_copy_only=False))
        # Random directions, the same ones each time: what lies near in all of them lies near in a few.
        directions = np.random.default_rng(7).standard_normal((vectors.shape[1], LENGTH))
        short = vectors @ directions
        short /= np.linalg.norm(short, axis=1, keepdims=True) + 1e-9
        return pa.record_batch({"coarse": pa.FixedSizeListArray.from_arrays(pa.array(short.ravel(), pa.float32()), LENGTH)})
