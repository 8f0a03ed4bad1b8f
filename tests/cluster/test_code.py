"""Where the steps' code lies when it is in no ConfigMap, on a real cluster: in an object, or in the image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.kubernetes.project_images import build_from_spark
from tests.cluster.installation import ROOT
from tests.cluster.user import User
from tests.support.archives import zip_of

pytestmark = pytest.mark.slow

ROWS = 40
DOCKERFILE = ROOT / "examples" / "image" / "Dockerfile"

WORDS = """
from importlib.resources import files

WORD = files(__package__).joinpath("word.txt").read_text()
"""
STEP = """
from {package} import WORD

def shape(row):
    return {{"id": row["id"], "text": WORD}}
"""
WHEEL = {
    "words-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: words\nVersion: 1.0\n",
    "words-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "words-1.0.dist-info/RECORD": "",
}


def package(name: str, word: str) -> dict[str, bytes | str]:
    """A package with a file of data, and a module with the step."""
    return {f"{name}/__init__.py": WORDS, f"{name}/word.txt": word, f"{name}/steps.py": STEP.format(package=name)}


def test_steps_of_a_file_a_zip_a_wheel_and_of_the_image_run_in_pods(users: Callable[[], User], tmp_path: Path) -> None:
    file, archive, wheel, image = (users() for _ in range(4))
    for user, kind in ((file, "iceberg"), (archive, "lance"), (wheel, "iceberg"), (image, "lance")):
        user.make_place(kind)
    own = build_from_spark(DOCKERFILE, folder_of_an_image(tmp_path))
    file.installation.cluster.load_image(own.archive)

    apply(file, "shaping:shape", uri=file.put_object("shaping.py", b"def shape(row):\n    return {**row, 'text': 'a file'}\n"))
    apply(archive, "shapes.steps:shape", uri=archive.put_object("code.zip", zip_of(package("shapes", "a zip"))))
    apply(wheel, "shapes.steps:shape", uri=wheel.put_object("shapes-1.0-py3-none-any.whl", zip_of(package("shapes", "a wheel"))))
    apply(image, "shaping:shape", image=own.reference, path="/opt/code")

    for user, word in ((file, "a file"), (archive, "a zip"), (wheel, "a wheel"), (image, "a package of the image")):
        user.wait_for("Committed")
        assert user.place is not None
        assert sorted((row["id"], row["text"]) for row in user.place.rows()) == [(number, word) for number in range(ROWS)]


def apply(user: User, call: str, image: str | None = None, **code: str) -> None:
    spec: dict[str, Any] = {"steps": [{"call": call, "input": "row"}], "code": code}
    if image is not None:
        spec["image"] = image
    user.apply(user.write(user.put_rows("a.parquet", 0, ROWS), executors=1, **spec))


def folder_of_an_image(folder: Path) -> Path:
    """What somebody has beside the Dockerfile: uv's hashes, requirements, which are a wheel here, and code that imports it."""
    context = folder / "image"
    (context / "code").mkdir(parents=True)
    wheel = "words-1.0-py3-none-any.whl"
    (context / wheel).write_bytes(zip_of({**WHEEL, "words/__init__.py": WORDS, "words/word.txt": "a package of the image"}))
    (context / "uv.txt").write_text(DOCKERFILE.with_name("uv.txt").read_text())
    (context / "requirements.txt").write_text(f"/context/{wheel}\n")
    (context / "code" / "shaping.py").write_text(STEP.format(package="words"))
    return context
