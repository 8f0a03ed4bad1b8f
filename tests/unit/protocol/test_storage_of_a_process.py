"""The storage settings of a driver or an executor: from a file or from a variable, and never quoted when they are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoint_local.processes import environment_of
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.spec import parse_manifest, validate_model
from checkpoint_protocol.places.setting_values import reveal
from checkpoint_protocol.places.settings import Settings
from checkpoint_spark.driver.main import EXIT_FAILED, drive, parse, words_of
from checkpoint_work.process.settings import LOCAL_STORAGE_VARIABLE
from checkpoint_work.tasks.executor import STORAGE_FILE_VARIABLE, STORAGE_VARIABLE, storage_settings
from tests.support.manifests import manifest

HIDDEN = "hidden-7c1f"


def settings_for(bucket: str) -> str:
    return json.dumps({"storage": [{"prefix": f"s3://{bucket}/", "access_key_id": "a", "secret_access_key": HIDDEN}]})


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORAGE_FILE_VARIABLE, raising=False)
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    monkeypatch.delenv(LOCAL_STORAGE_VARIABLE, raising=False)


def test_without_either_there_are_none() -> None:
    assert storage_settings().storage == ()


def test_they_come_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, settings_for("one"))

    (entry,) = storage_settings().storage

    assert entry.prefix == "s3://one/"
    assert entry.secret_access_key is not None
    assert reveal(entry.secret_access_key, "here") == HIDDEN


def test_a_run_on_one_machine_hands_over_its_settings_and_leaves_no_file_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    settings = validate_model(Settings, {**json.loads(settings_for("one")), "catalogs": {"c": {"type": "rest", "uri": HIDDEN}}})

    environment = environment_of(parse_manifest(manifest()).spec, settings)

    assert list(tmp_path.iterdir()) == []
    assert "catalogs" not in environment[LOCAL_STORAGE_VARIABLE]
    monkeypatch.setenv(LOCAL_STORAGE_VARIABLE, environment[LOCAL_STORAGE_VARIABLE])
    (entry,) = storage_settings().storage
    assert entry.secret_access_key is not None
    assert reveal(entry.secret_access_key, "here") == HIDDEN


def test_more_settings_than_a_process_takes_are_refused_and_those_that_a_write_needs_are_taken() -> None:
    one = json.loads(settings_for("one"))
    many = {"storage": [{**one["storage"][0], "prefix": f"s3://bucket-{number}/"} for number in range(1000)]}

    with pytest.raises(NeedsChange, match="leave out there what this write does not need"):
        environment_of(parse_manifest(manifest()).spec, validate_model(Settings, many))

    assert environment_of(parse_manifest(manifest()).spec, validate_model(Settings, one))


def test_the_file_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "storage.json").write_text(settings_for("file"))
    monkeypatch.setenv(STORAGE_VARIABLE, settings_for("variable"))
    monkeypatch.setenv(STORAGE_FILE_VARIABLE, str(tmp_path / "storage.json"))

    assert storage_settings().storage[0].prefix == "s3://file/"


WRONG = {
    "nothing": ("", "not JSON"),
    "a cut text": (settings_for("b")[:-3], "not JSON"),
    "yaml": (f"storage:\n- secret_access_key: {HIDDEN}\n", "not JSON"),
    "a list": (f'["{HIDDEN}"]', "a mapping is expected"),
    "a misspelt field": (settings_for("b").replace("secret_access_key", "secret_acces_key"), "'secret_access_key'"),
    "a wrong type": (settings_for("b").replace(f'"{HIDDEN}"', f'["{HIDDEN}"]'), "storage.0.secret_access_key"),
    "two places of a secret": (
        settings_for("b").replace(f'"{HIDDEN}"', json.dumps({"env": HIDDEN, "file": HIDDEN})),
        "exactly one of env and file",
    ),
    "a whole settings file": (json.dumps({"catalogs": {HIDDEN: {"uri": HIDDEN}}, "storage": []}), "catalogs"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("source", [LOCAL_STORAGE_VARIABLE, STORAGE_VARIABLE, STORAGE_FILE_VARIABLE])
def test_wrong_settings_are_told_by_place_and_never_quoted(
    kind: str, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text, gist = WRONG[kind]
    (tmp_path / "storage.json").write_text(text)
    monkeypatch.setenv(source, str(tmp_path / "storage.json") if source == STORAGE_FILE_VARIABLE else text)

    with pytest.raises(NeedsChange) as caught:
        storage_settings()

    assert caught.value.reason == reasons.MANIFEST_INVALID
    assert gist in caught.value.message
    assert source in caught.value.message
    assert HIDDEN not in caught.value.message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STORAGE_FILE_VARIABLE, str(tmp_path / "no.json"))

    with pytest.raises(NeedsChange, match=r"no\.json.*No such file"):
        storage_settings()


def test_a_driver_with_wrong_settings_tells_in_one_line_and_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, "{")
    told: list[str | CheckpointError] = []
    line = ["--uri", str(tmp_path), "--uid", "u", "--epoch", "1", "--attempt", "1", "--parallelism", "1"]

    assert drive(parse(line, "local[1]"), told.append) == EXIT_FAILED

    assert len(told) == 1
    assert words_of(told[0]).startswith("ManifestInvalid: the storage settings")
    assert "Traceback" not in capsys.readouterr().err
