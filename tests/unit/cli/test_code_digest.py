"""The digest of a write's code: changes with what runs, and with nothing else."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_operator.code.digest import code_digest, code_folder
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import API_VERSION, KIND, Spec, parse_manifest
from checkpoint_protocol.manifest.steps import Step


def spec(folder: Path | str | None = None, *steps: dict[str, Any], **changes: Any) -> Spec:
    document: dict[str, Any] = {
        "source": {"files": {"format": "parquet", "paths": ["/in"]}},
        "steps": list(steps or ({"call": "flights:clean"}, {"call": "flights:predict", "arguments": {"size": 1}})),
        "sink": {"none": {}},
        "checkpoint": {"uri": "/c"},
        **changes,
    }
    if folder is not None:
        document["code"] = {"path": str(folder)}
    return parse_manifest({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "n"}, "spec": document}).spec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "code" / "deep").mkdir(parents=True)
    (tmp_path / "code" / "flights.py").write_text("x = 1\n")
    (tmp_path / "code" / "deep" / "model.bin").write_bytes(b"\x00\xff")
    return tmp_path / "code"


CHANGES: dict[str, Callable[[Path], object]] = {
    "a line of code": lambda folder: (folder / "flights.py").write_text("x = 2\n"),
    "a file that is no Python": lambda folder: (folder / "deep" / "model.bin").write_bytes(b"\x00\xfe"),
    "a new file": lambda folder: (folder / "new.py").write_text(""),
    "a file that is gone": lambda folder: (folder / "deep" / "model.bin").unlink(),
    "a file that was renamed": lambda folder: (folder / "flights.py").rename(folder / "flights2.py"),
    "a file that was moved": lambda folder: (folder / "flights.py").rename(folder / "deep" / "flights.py"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_code_folder_changes_the_digest(folder: Path, change: str) -> None:
    before = code_digest(spec(folder))
    CHANGES[change](folder)

    assert code_digest(spec(folder)) != before


def put(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")


NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "a time": lambda folder: (folder / "flights.py").touch(),
    "compiled code": lambda folder: put(folder / "__pycache__" / "flights.pyc"),
    "a hidden file": lambda folder: put(folder / ".env"),
    "a hidden folder": lambda folder: put(folder / ".git" / "HEAD"),
    "an empty folder": lambda folder: (folder / "empty").mkdir(),
}


@pytest.mark.parametrize("change", NO_CHANGES)
def test_what_does_not_run_does_not_change_the_digest(folder: Path, change: str) -> None:
    before = code_digest(spec(folder))
    NO_CHANGES[change](folder)

    assert code_digest(spec(folder)) == before


def test_the_place_of_the_folder_does_not_matter(folder: Path) -> None:
    before = code_digest(spec(folder))

    assert code_digest(spec(folder.rename(folder.with_name("elsewhere")))) == before


def test_the_same_folder_by_path_and_by_uri_gives_the_same(folder: Path) -> None:
    assert code_digest(spec(folder)) == code_digest(spec(f"file://{folder}"))


@pytest.mark.parametrize(
    "steps",
    [
        [{"call": "flights:predict", "arguments": {"size": 1}}, {"call": "flights:clean"}],
        [{"call": "flights:clean"}],
        [{"call": "flights:clean"}, {"call": "flights:predict", "arguments": {"size": 2}}],
        [{"call": "flights:clean"}, {"call": "flights:predict", "input": "row", "arguments": {"size": 1}}],
        [{"call": "flights:clean2"}, {"call": "flights:predict", "arguments": {"size": 1}}],
    ],
)
def test_other_steps_arguments_or_another_order_change_the_digest(steps: list[dict[str, Any]]) -> None:
    assert code_digest(spec(None, *steps)) != code_digest(spec())


def test_what_is_not_code_does_not_change_the_digest() -> None:
    other = spec(
        source={"files": {"format": "csv", "paths": ["/other"]}},
        sink={"lance": {"uri": "/x"}},
        checkpoint={"uri": "/d"},
        backoffLimit=9,
    )

    assert code_digest(other) == code_digest(spec())


#: All fields of a step that say how it is called, and not what it gives.
CALLING: dict[str, Any] = {
    "concurrency": 8,
    "timeout": "5s",
    "retry": {"attempts": 2, "firstDelay": "2s", "mostDelay": "9s", "on": ["APIError"]},
    "rateLimit": {"calls": 10, "per": "1m"},
    "memo": True,
}


@pytest.mark.parametrize("changed", [CALLING, *({name: value} for name, value in CALLING.items())], ids=lambda one: "+".join(one))
def test_how_a_step_is_called_does_not_change_the_digest(changed: dict[str, Any]) -> None:
    first, second = {"call": "flights:clean", "input": "row"}, {"call": "flights:predict", "input": "row"}

    assert code_digest(spec(None, {**first, **changed}, second)) == code_digest(spec(None, first, second))


def test_the_rows_of_a_batch_do_not_change_the_digest() -> None:
    assert code_digest(spec(None, {"call": "flights:clean", "batchSize": 7})) == code_digest(
        spec(None, {"call": "flights:clean"})
    )


def test_every_field_of_a_step_was_decided_to_be_in_the_digest_or_not() -> None:
    """One that is added has to be named here, and to be left out where it says only how a step is called."""
    assert set(Step.model_fields) == {
        *("call", "input", "name", "arguments", "output"),
        *("concurrency", "batch_size", "timeout", "retry", "rate_limit", "memo"),
    }


@pytest.mark.parametrize(
    ("steps", "covered"),
    [
        ([{"call": "flights:clean"}], [b'{"call":"flights:clean","input":"arrow","name":null,"arguments":{}}']),
        (
            [
                {"call": "flights:clean", "input": "row", "name": "clean", "arguments": {"size": 1}},
                {"call": "flights:predict", "output": {"id": "int64"}, "batchSize": 9},
            ],
            [
                b'{"call":"flights:clean","input":"row","name":"clean","arguments":{"size":1}}',
                b'{"call":"flights:predict","input":"arrow","name":null,"arguments":{},"output":{"id":"int64"}}',
            ],
        ),
    ],
    ids=["the defaults", "all that results depend on"],
)
def test_the_digest_of_a_running_write_stays_from_release_to_release(steps: list[dict[str, Any]], covered: list[bytes]) -> None:
    """Seals carry it. These are the bytes that earlier releases took, so that an upgrade makes no seal one of other code."""
    expected = hashlib.sha256(b"".join([*covered, b"\0image steps:1\0\0"])).hexdigest()

    assert code_digest(spec(None, *steps), image="steps:1") == expected


def test_the_version_of_an_installed_package_is_part_of_the_digest() -> None:
    """Steps from an installed package have no folder; another release of it is other code."""
    installed, unknown = code_digest(spec(None, {"call": "pyarrow:f"})), code_digest(spec(None, {"call": "no_such_package:f"}))

    assert len({installed, unknown}) == 2
    assert installed == code_digest(spec(None, {"call": "pyarrow:f"}))


def test_a_digest_is_one_that_seals_can_carry() -> None:
    assert len(code_digest(spec())) == 64
    assert set(code_digest(spec())) <= set("0123456789abcdef")


@pytest.mark.parametrize("path", ["no-such-folder", "a-file", "s3://bucket/code"])
def test_a_code_path_that_is_no_folder_here_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "a-file").write_text("x")
    given = path if "://" in path else str(tmp_path / path)

    with pytest.raises(NeedsChange, match=r"spec\.code\.path") as caught:
        code_folder(spec(given))
    assert caught.value.reason == reasons.CODE_MISSING
    assert given in caught.value.message


def staged(*modules: str) -> Spec:
    stages = [{"name": "only", "steps": [{"call": "flights:clean"}], "code": list(modules)}]
    return spec(None, steps=[], stages=stages, code={"uri": "/c.zip"})


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"{name}.py", data)
    return buffer.getvalue()


def test_an_archive_of_which_a_stage_names_modules_is_never_unpacked_as_a_whole() -> None:
    archive = zipped(beside=bytes(64 << 20), flights=bytes(64 << 20))
    tracemalloc.start()
    try:
        digest = code_digest(staged("flights"), "a" * 64, open_archive=lambda: archive)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 16 << 20
    assert digest == code_digest(staged("flights"), "b" * 64, open_archive=lambda: zipped(flights=bytes(64 << 20)))
    assert digest != code_digest(staged("flights"), "a" * 64, open_archive=lambda: zipped(flights=bytes((64 << 20) - 1)))


def test_an_archive_with_a_broken_module_is_told_as_missing_code() -> None:
    archive = zipped(flights=b"x = 1")
    broken = archive.replace(zlib.compress(b"x = 1")[2:-4], b"\xff" * 7)

    with pytest.raises(NeedsChange, match=r"'flights\.py' in it cannot be read") as refused:
        code_digest(staged("flights"), "a" * 64, open_archive=lambda: broken)
    assert refused.value.reason == reasons.CODE_MISSING
    assert code_digest(staged("flights"), "a" * 64, open_archive=lambda: archive), "made anew"
