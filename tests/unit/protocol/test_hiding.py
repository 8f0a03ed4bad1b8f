"""Files of a write's code that hide modules of the driver are named, and what hides nothing is left alone."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.code.hiding import hiding, modules_in, refuse_hiding
from checkpoint_protocol.errors import NeedsChange


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("email.py", "email"),
        ("queue/__init__.py", "queue"),
        ("json/__init__.pyc", "json"),
        ("select.cpython-312-x86_64-linux-gnu.so", "select"),
        ("pandas.py", "pandas"),
        ("numpy/__init__.py", "numpy"),
        ("checkpoint_spark/__init__.py", "checkpoint_spark"),
        ("checkpointed_writes.py", "checkpointed_writes"),
    ],
)
def test_a_module_of_the_name_of_one_that_the_driver_needs_hides_it(file: str, name: str) -> None:
    assert hiding([PurePosixPath(file), PurePosixPath("flights.py")]) == [(PurePosixPath(file), name)]


@pytest.mark.parametrize(
    "file",
    [
        "flights.py",
        "email.txt",
        "email/readme.md",
        "email/parts.py",  # without __init__, so that Python prefers the library's
        "flights/email.py",
        "flights/email/__init__.py",
        "email_parts.py",
        "email-1.0.dist-info/METADATA",
        "tests/__init__.py",
    ],
)
def test_what_is_no_module_of_that_name_at_the_top_hides_nothing(file: str) -> None:
    assert hiding([PurePosixPath(file)]) == []


def test_the_modules_at_the_top_of_a_folder_are_found(tmp_path: Path) -> None:
    for name in ("email.py", "queue/__init__.py", "queue/deep/__init__.py", "json/data.json", "flights.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert [str(file) for file, _ in hiding(modules_in(tmp_path))] == ["email.py", "queue/__init__.py"]
    assert list(modules_in(tmp_path / "nowhere")) == []


def test_a_refusal_names_the_place_the_files_and_what_they_hide_in_bounds() -> None:
    names = ("email", "pyarrow", "checkpoint_spark", "ast", "bisect", "calendar", "queue")

    with pytest.raises(NeedsChange) as caught:
        refuse_hiding((PurePosixPath(f"{name}.py") for name in names), "spec.code.path: code")

    assert caught.value.reason == reasons.CODE_MISSING
    assert caught.value.message.startswith("spec.code.path: code has modules that the driver would import")
    for said in (
        "email.py hides 'email' of Python's standard library",
        "'checkpoint_spark' of Checkpointed Writes",
        "and 2 more",
    ):
        assert said in caught.value.message
    with pytest.raises(NeedsChange, match=r"pyarrow\.py hides the installed package 'pyarrow'"):
        refuse_hiding([PurePosixPath("pyarrow.py")], "spec.code.path: code")
