"""The digest of a write's code: changes with what runs, and with nothing else."""

from __future__ import annotations

import hashlib
import io
import textwrap
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoint_control.code.digest import code_digest, code_files
from checkpoint_control.code.trees import ArchiveTree, FolderTree, code_folder
from checkpoint_local.code import code_tree, digests_with
from checkpoint_protocol import reasons
from checkpoint_protocol.code.archives import OpenArchive
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


def digest_of(spec: Spec, image: str | None = None) -> str:
    return digests_with(None, image)(spec)


def files_of(spec: Spec) -> tuple[str, ...]:
    return code_files(spec, code_tree(spec, None)).files


#: All that a first job of one's own has in its folder, and only some of which a step can import.
CODE = {
    "flights.py": """
        import json, helper
        from pathlib import Path
        from shapes import area, circle
        from . import nothing
        WORDS = (Path(__file__).parent / "words" / "stop.txt").read_text()
        MODEL = "large.model"
        def clean(rows):
            from late import slow
            return rows
        if __name__ == "__main__":
            start("write.yaml", "data/in.parquet")
    """,
    "helper.py": "import deep.er",
    "late.py": "",
    "shapes/__init__.py": "from .area import area",
    "shapes/area.py": "from ..helper import x\nfrom .units import metres",
    "shapes/units.py": "",
    "shapes/circle.py": "",
    "shapes/square.py": "",
    "shapes/model.bin": "weights",
    "shapes/tables/pi.json": "3.14",
    "deep/er.py": "",
    "words/stop.txt": "the",
    "words/go.txt": "a",
    "write.yaml": "apiVersion: checkpointed.dev/v1alpha1\nkind: CheckpointedWrite",
    "data/in.parquet": "rows",
    "checkpoints/w/1/attempts/1.json": "{}",
    "shapes/out/part.parquet": "rows",
    "shapes/.cache/x": "",
    "shapes/scratch.log": "",
    "shapes/kept.log": "",
    "large.model": "weights",
    ".gitignore": "*.log\n*.model\n!kept.log",
    "unrelated.py": "",
    "test_flights.py": "import flights",
    "notes.md": "",
}
#: What of it is code: found by the imports, at all depths; the data of a package; and a file whose name is spelled out.
ARE_CODE = {
    *("flights.py", "helper.py", "late.py", "deep/er.py", "words/stop.txt", "large.model"),
    *("shapes/__init__.py", "shapes/area.py", "shapes/units.py", "shapes/circle.py"),
    *("shapes/model.bin", "shapes/tables/pi.json", "shapes/kept.log"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in CODE.items():
        put(tmp_path / "code" / name, textwrap.dedent(text))
    return tmp_path / "code"


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def of_all(folder: Path) -> Spec:
    """Return a write that has everything in its code folder."""
    return spec(
        folder,
        source={"files": {"format": "parquet", "paths": [f"{folder}/data/*.parquet"]}},
        sink={"lance": {"uri": f"{folder}/shapes/out"}},
        checkpoint={"uri": f"{folder}/checkpoints"},
    )


def test_the_code_is_what_the_steps_import_and_the_data_of_that(folder: Path) -> None:
    assert set(files_of(of_all(folder))) == ARE_CODE


@pytest.mark.parametrize("name", CODE)
def test_an_edit_of_code_changes_the_digest_and_one_of_another_file_does_not(folder: Path, name: str) -> None:
    before = digest_of(of_all(folder))
    put(folder / name, f"{textwrap.dedent(CODE[name])}\n# edited\n")

    assert (digest_of(of_all(folder)) != before) == (name in ARE_CODE)


CHANGES: dict[str, Callable[[Path], object]] = {
    "an import of a module that nothing imported": lambda folder: put(folder / "late.py", "import unrelated"),
    "data of a package that is new": lambda folder: put(folder / "shapes" / "new.bin"),
    "data that is gone": lambda folder: (folder / "shapes" / "model.bin").unlink(),
    "data that was renamed": lambda folder: (folder / "shapes" / "model.bin").rename(folder / "shapes" / "model2.bin"),
    "a module that was moved into a package": lambda folder: (folder / "late.py").rename(folder / "shapes" / "late.py"),
    "a package instead of a module": lambda folder: put(folder / "late" / "__init__.py", ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_code_changes_the_digest(folder: Path, change: str) -> None:
    before = digest_of(of_all(folder))
    CHANGES[change](folder)

    assert digest_of(of_all(folder)) != before


NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "a time": lambda folder: (folder / "flights.py").touch(),
    "compiled code": lambda folder: put(folder / "shapes" / "__pycache__" / "area.pyc"),
    "a hidden file": lambda folder: put(folder / "shapes" / ".env"),
    "a hidden folder": lambda folder: put(folder / ".git" / "HEAD"),
    "an empty folder": lambda folder: (folder / "shapes" / "empty").mkdir(),
    "results of the write": lambda folder: put(folder / "shapes" / "out" / "more.parquet"),
    "new input": lambda folder: put(folder / "data" / "more.parquet"),
    "what git ignores": lambda folder: put(folder / "shapes" / "more.log"),
}


@pytest.mark.parametrize("change", NO_CHANGES)
def test_what_does_not_run_does_not_change_the_digest(folder: Path, change: str) -> None:
    before = digest_of(of_all(folder))
    NO_CHANGES[change](folder)

    assert digest_of(of_all(folder)) == before


#: Imports that only running the code would tell, and one that its text tells.
NOT_FOLLOWED = {
    "importlib.import_module(name)": "import_module(...)",
    "__import__(name)": "__import__(...)",
    "import sys; sys.path.insert(0, 'plugins')": "sys.path.insert(...)",
    "import sys; sys.path += ['plugins']": "sys.path = ...",
    "runpy.run_path(name)": "run_path(...)",
    "for one in pkgutil.iter_modules([name]): pass": "iter_modules(...)",
    "def broken(:": "it cannot be parsed",
}


@pytest.mark.parametrize("line", NOT_FOLLOWED)
def test_where_an_import_cannot_be_followed_all_modules_are_code_and_it_is_named(tmp_path: Path, line: str) -> None:
    put(tmp_path / "flights.py", f"x = 1\n{line}\n")
    put(tmp_path / "plugins" / "one.py")
    put(tmp_path / "venv" / "pyvenv.cfg")
    put(tmp_path / "venv" / "lib" / "some.py")
    put(tmp_path / "data" / "in.parquet")
    found = code_files(spec(tmp_path), lambda: FolderTree(tmp_path))

    assert found.files == ("flights.py", "plugins/one.py")
    assert [str(one) for one in found.not_followed] == [f"flights.py, line 2: {NOT_FOLLOWED[line]}"]


@pytest.mark.parametrize("line", ["importlib.import_module('plugins.one')", "import_module('.one', 'plugins')"])
def test_a_module_that_is_loaded_by_its_name_is_code(tmp_path: Path, line: str) -> None:
    put(tmp_path / "plugins" / "one.py")
    put(tmp_path / "plugins" / "two.py")
    put(tmp_path / "flights.py", line if "'." not in line else "from plugins import steps")
    put(tmp_path / "plugins" / "steps.py", line if "'." in line else "")

    assert "plugins/one.py" in files_of(spec(tmp_path))
    assert "plugins/two.py" not in files_of(spec(tmp_path))


def test_files_beyond_the_bound_count_by_their_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoint_control.code.found.MOST_READ_BYTES", 1_000)
    put(tmp_path / "flights.py", "open('large.bin'), open('small.bin')")
    put(tmp_path / "large.bin", "x" * 2_000)
    put(tmp_path / "small.bin", "x" * 100)
    before = digest_of(spec(tmp_path))
    put(tmp_path / "large.bin", "y" * 2_000)

    assert code_files(spec(tmp_path), lambda: FolderTree(tmp_path)).by_size == ("large.bin",)
    assert digest_of(spec(tmp_path)) == before
    put(tmp_path / "large.bin", "y" * 2_001)
    assert digest_of(spec(tmp_path)) != before


def test_a_package_that_is_imported_from_where_it_is_written_is_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "written_here" / "__init__.py", "")
    put(tmp_path / "written_here" / "steps.py", "x = 1")
    monkeypatch.syspath_prepend(tmp_path)
    call = {"call": "written_here.steps:f"}
    before = digest_of(spec(None, call))
    put(tmp_path / "written_here" / "steps.py", "x = 2")

    assert digest_of(spec(None, call)) != before


def of_stage(folder: Path, *named: str) -> Spec:
    stages = [{"name": "only", "steps": [{"call": "first:f"}], "code": list(named)}]
    return spec(folder, steps=[], stages=stages)


@pytest.mark.parametrize("named", [(), ("first",)])
def test_a_module_that_a_stage_s_module_imports_is_part_of_it(tmp_path: Path, named: tuple[str, ...]) -> None:
    """An edit of it would else leave rows of the old one, which nobody told from those of now."""
    put(tmp_path / "first.py", "from helper import clean")
    put(tmp_path / "helper.py", "clean = 1")
    put(tmp_path / "second.py", "")
    before = digest_of(of_stage(tmp_path, *named))
    put(tmp_path / "second.py", "edited = 1")
    assert digest_of(of_stage(tmp_path, *named)) == before

    put(tmp_path / "helper.py", "clean = 2")
    assert digest_of(of_stage(tmp_path, *named)) != before


def test_a_package_that_a_stage_names_is_all_of_its_modules(tmp_path: Path) -> None:
    put(tmp_path / "first.py", "")
    put(tmp_path / "docs" / "deep" / "parsing.py", "import beside")
    put(tmp_path / "beside.py", "import_module(name)")

    assert files_of(of_stage(tmp_path, "docs")) == ("beside.py", "docs/deep/parsing.py")


def test_the_place_of_the_folder_does_not_matter(folder: Path) -> None:
    before = digest_of(spec(folder))

    assert digest_of(spec(folder.rename(folder.with_name("elsewhere")))) == before


def test_the_same_folder_by_path_and_by_uri_gives_the_same(folder: Path) -> None:
    assert digest_of(spec(folder)) == digest_of(spec(f"file://{folder}"))


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
    assert digest_of(spec(None, *steps)) != digest_of(spec())


def test_what_is_not_code_does_not_change_the_digest() -> None:
    other = spec(
        source={"files": {"format": "csv", "paths": ["/other"]}},
        sink={"lance": {"uri": "/x"}},
        checkpoint={"uri": "/d"},
        backoffLimit=9,
    )

    assert digest_of(other) == digest_of(spec())


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

    assert digest_of(spec(None, {**first, **changed}, second)) == digest_of(spec(None, first, second))


def test_the_rows_of_a_batch_do_not_change_the_digest() -> None:
    assert digest_of(spec(None, {"call": "flights:clean", "batchSize": 7})) == digest_of(spec(None, {"call": "flights:clean"}))


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

    assert digest_of(spec(None, *steps), image="steps:1") == expected


def test_the_version_of_an_installed_package_is_part_of_the_digest() -> None:
    """Steps from an installed package have no folder; another release of it is other code."""
    installed, unknown = digest_of(spec(None, {"call": "pyarrow:f"})), digest_of(spec(None, {"call": "no_such_package:f"}))

    assert len({installed, unknown}) == 2
    assert installed == digest_of(spec(None, {"call": "pyarrow:f"}))


def test_a_digest_is_one_that_seals_can_carry() -> None:
    assert len(digest_of(spec())) == 64
    assert set(digest_of(spec())) <= set("0123456789abcdef")


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


def of_archive(data: bytes) -> str:
    return code_digest(staged("flights"), lambda: ArchiveTree(OpenArchive(data)))


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
        digest = of_archive(archive)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 16 << 20
    assert digest == of_archive(zipped(flights=bytes(64 << 20)))
    assert digest != of_archive(zipped(flights=bytes((64 << 20) - 1)))


def test_an_archive_with_a_broken_module_is_told_as_missing_code() -> None:
    archive = zipped(flights=b"x = 1")
    broken = archive.replace(zlib.compress(b"x = 1")[2:-4], b"\xff" * 7)

    with pytest.raises(NeedsChange, match=r"'flights\.py' in it cannot be read") as refused:
        of_archive(broken)
    assert refused.value.reason == reasons.CODE_MISSING
    assert of_archive(archive), "made anew"


def test_a_file_of_the_code_that_cannot_be_read_is_told_as_missing_code(tmp_path: Path) -> None:
    put(tmp_path / "flights.py", "import helper")
    (tmp_path / "helper.py").symlink_to(tmp_path / "gone.py")

    with pytest.raises(NeedsChange, match=r"spec\.code: .*helper\.py cannot be read: .*; mend it, or take it out") as refused:
        digest_of(spec(tmp_path))
    assert refused.value.reason == reasons.CODE_MISSING
    put(tmp_path / "gone.py", "x = 1")
    mended = digest_of(spec(tmp_path))
    (tmp_path / "helper.py").unlink()
    assert digest_of(spec(tmp_path)) != mended
