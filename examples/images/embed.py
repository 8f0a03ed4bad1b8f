"""The fourth example's step: a vector for each image, by a network that reads text, which prepare_images.py puts here."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pyarrow as pa
from PIL import Image

MODEL = Path(__file__).with_name("model.onnx")
CHARACTERS = Path(__file__).with_name("characters.txt")
HEIGHT, WIDTH = 48, 64
#: What is less likely than this is all the same.
LEAST = 1e-6


class Embed:
    """A batch step. `setup` runs once per process: whatever takes long to load belongs there."""

    def setup(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # as many tasks run at once as there are cores
        options.log_severity_level = 3
        self.network = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
        characters = CHARACTERS.read_text().split("\n")
        self.chosen = [number for number, one in enumerate(characters) if len(one) == 1 and one.isascii() and one.isalnum()]

    def __call__(self, images: pa.RecordBatch) -> pa.RecordBatch:
        # One that cannot be decoded raises: that file is a row that fails, and the others of the batch are done without it.
        pixels = np.stack([pixels_of(content.as_py()) for content in images["content"]])
        (likelihoods,) = self.network.run(None, {"x": pixels})  # by image, place in it, and character
        vectors = np.log(likelihoods[:, :, self.chosen].max(axis=1) / LEAST + 1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-9
        names = [Path(path.as_py()).name for path in images["path"]]
        # Of a fixed length: what Lance searches, and makes vector indexes of.
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])
        return pa.record_batch({"image": names, "bytes": images["size"], "vector": column})


def pixels_of(content: bytes) -> npt.NDArray[np.float32]:
    """Return an image as the network wants it: three colors from -1 to 1, of its height; in the middle of a dark line."""
    line = np.full((3, HEIGHT, WIDTH), -1, np.float32)
    with Image.open(io.BytesIO(content)) as image:
        small = image.convert("RGB").resize((HEIGHT, HEIGHT), Image.Resampling.BILINEAR)
    left = (WIDTH - HEIGHT) // 2
    line[:, :, left : left + HEIGHT] = np.asarray(small, np.float32).transpose(2, 0, 1) / 127.5 - 1
    return line
