"""examples/images-lance.yaml: vectors of images in a Lance table, which finds by them what looks alike."""

from __future__ import annotations

import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
import yaml

from checkpoint_control.decision.actions import Finish
from checkpoint_protocol.manifest.spec import parse_manifest
from tests.support.places import Place
from tests.support.writes import drive, reconciler_for

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A folder with the example's code, and beside it the model, as examples/prepare_images.py makes it."""
    folder = tmp_path / "code"
    shutil.copytree(EXAMPLES / "images", folder, ignore=shutil.ignore_patterns("*.onnx", "*.txt"))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("embed", None)
    sys.modules.pop("shorten", None)


def test_the_example_gives_vectors_by_which_lance_finds_other_images_of_the_same_digit(
    lance_place: Place, code: Path, tmp_path: Path
) -> None:
    prepare = runpy.run_path(str(EXAMPLES / "prepare_images.py"))
    prepare["write_model"](code)
    count = prepare["write_images"](tmp_path / "digits")
    (tmp_path / "digits" / "half.png").write_bytes(next((tmp_path / "digits").iterdir()).read_bytes()[:50])
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / "images-lance.yaml").read_text())
    spec = document["spec"]
    spec["source"]["files"]["paths"] = [str(tmp_path / "digits" / "*.png")]
    spec["code"]["path"] = str(code)
    spec["sink"] = {**lance_place.sink(), "create": True}
    spec["checkpoint"] = {"uri": lance_place.checkpoint_uri, "interval": "1h"}

    ended = drive(reconciler_for(parse_manifest(document), lance_place))

    assert isinstance(ended.outcome, Finish), ended.outcome
    assert ended.commit is not None
    assert (ended.commit.rows_written, ended.commit.rows_quarantined) == (count, 1)
    table = lance.dataset(spec["sink"]["lance"]["uri"])
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 62)
    rows = table.to_table().to_pydict()
    assert sorted(rows["image"]) == sorted(path.name for path in (tmp_path / "digits").glob("digit-*"))
    vectors, digits = np.array(rows["vector"]), np.array([name.split("-")[1] for name in rows["image"]])
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -1)
    assert (digits[likeness.argmax(axis=1)] == digits).mean() > 0.9

    columns: dict[str, Any] = yaml.safe_load((EXAMPLES / "images-columns.yaml").read_text())
    added, uri = columns["spec"], spec["sink"]["lance"]["uri"]
    added["source"]["lance"]["uri"] = added["sink"]["lance"]["uri"] = uri
    added["code"], added["checkpoint"] = spec["code"], spec["checkpoint"]
    assert isinstance(drive(reconciler_for(parse_manifest(columns), lance_place)).outcome, Finish)
    table = lance.dataset(uri)
    with_column = table.to_table().to_pydict()
    assert {name: with_column[name] for name in rows} == rows
    coarse = np.array(with_column["coarse"])
    assert np.allclose(np.linalg.norm(coarse, axis=1), 1, atol=1e-5)
    likeness = coarse @ coarse.T
    np.fill_diagonal(likeness, -1)
    assert (digits[likeness.argmax(axis=1)] == digits).mean() > 0.6

    nearest = runpy.run_path(str(EXAMPLES / "nearest_images.py"))["nearest"]
    table.create_index("vector", index_type="IVF_FLAT", metric="cosine", num_partitions=2)
    for digit in "0123456789":
        name = next(name for name in sorted(rows["image"]) if name.startswith(f"digit-{digit}-"))
        found = nearest(table, name, 4)
        assert len(set(found) - {name}) == 4
        assert sum(other.startswith(f"digit-{digit}-") for other in found) >= 3
