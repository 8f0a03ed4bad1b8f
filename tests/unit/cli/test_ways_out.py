"""What a manifest or the settings are refused for by the operator and by `validate`; as the message says, they are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pytest

from checkpoint_commit.lance.added.table import PylanceColumns
from checkpoint_control.code.digest import code_digest
from checkpoint_control.code.trees import ArchiveTree
from checkpoint_control.loop.looks import refuse_paths_of_pods
from checkpoint_control.validation.report import Findings
from checkpoint_control.validation.source import check_keyed_source
from checkpoint_control.validation.target import check_target
from checkpoint_local.cli.files import SETTINGS_NAME, SETTINGS_VARIABLE, FoundSettings, find_settings, load_settings
from checkpoint_protocol.code.archives import OpenArchive
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import Spec, parse_manifest
from checkpoint_protocol.places.settings import Settings
from tests.support.archives import zip_of
from tests.support.manifests import manifest


def spec_of(**changes: Any) -> Spec:
    return parse_manifest(manifest(**{f"spec__{path}": value for path, value in changes.items()})).spec


def test_a_trigger_on_a_bucket_or_none_is_taken_as_the_message_says() -> None:
    every = {"every": "5m"}
    with pytest.raises(NeedsChange, match="read a bucket, or leave the trigger out and set another runNonce for what is new"):
        refuse_paths_of_pods(spec_of(trigger=every))

    refuse_paths_of_pods(spec_of(trigger=every, source__files__paths=["s3://b/in/*.csv"]))
    refuse_paths_of_pods(spec_of(runNonce="2"))


def test_a_path_of_spark_that_is_corrected_is_no_problem(tmp_path: Path) -> None:
    def problems(path: Path) -> list[str]:
        findings = Findings()
        orc = {"format": "orc", "paths": [str(path)], "keyColumns": ["id"]}
        check_keyed_source(spec_of(source={"spark": orc}).source, findings)
        return [problem.message for problem in findings.problems]

    assert problems(tmp_path / "in") == [f"{tmp_path}/in: there is no such file or folder; correct the path"]
    assert problems(tmp_path) == []


def test_a_folder_of_a_catalog_that_was_made_is_found(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("catalogs: {lake: {type: sql, uri: 'sqlite:///deep/catalog.db', warehouse: here}}")
    with pytest.raises(NeedsChange, match=r"catalogs\.lake\.uri: the folder .*/deep does not exist; make it"):
        load_settings(FoundSettings(settings, True))

    (tmp_path / "deep").mkdir()
    assert load_settings(FoundSettings(settings, True)).catalogs["lake"].uri == f"sqlite:///{tmp_path}/deep/catalog.db"


@pytest.mark.parametrize("way", ["beside", "--settings", "variable"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_write_whose_catalog_is_nowhere_is_told_the_file_to_make_and_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, number: int
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(SETTINGS_VARIABLE, raising=False)
    write, given = tmp_path / "write.yaml", None
    with pytest.raises(NeedsChange) as refused:
        load_settings(find_settings(None, write)).catalog("lake")
    said = refused.value.message
    assert f"make {SETTINGS_NAME} beside the manifest, or name a file with --settings or ${SETTINGS_VARIABLE}" in said

    file = tmp_path / (SETTINGS_NAME if way == "beside" else "mine.yaml")
    file.write_text(said.partition("e.g. ")[2].split(", or ")[number])
    if way == "variable":
        monkeypatch.setenv(SETTINGS_VARIABLE, str(file))
    elif way == "--settings":
        given = file
    assert load_settings(find_settings(given, write)).catalog("lake").type == ("rest", "sql")[number]


_STAGED: Final = {"name": "a", "steps": [{"call": "m:f"}]}


def test_modules_of_a_stage_that_are_named_or_delivered_as_the_message_says_have_a_digest() -> None:
    archive = zip_of({"docs/parsing.py": "x = 1"})

    def digest(module: str | None, *, is_delivered: bool = True) -> str:
        code = {"code": {"uri": "s3://b/c.zip"}} if is_delivered else {"code": {"path": "/code"}}
        stage = _STAGED | ({"code": [module]} if module is not None else {})
        return code_digest(spec_of(stages=[stage], **code), lambda: ArchiveTree(OpenArchive(archive)), "spark:1")

    with pytest.raises(NeedsChange, match=r"say code\.configMap or code\.uri, or leave code of the stage out"):
        digest("docs.parsing", is_delivered=False)
    assert digest("docs.parsing") != digest(None, is_delivered=False)

    with pytest.raises(NeedsChange, match=r"names the module 'docs\.parsng', .*; correct the name"):
        digest("docs.parsng")
    assert digest("docs.parsing")


def test_a_dataset_that_is_there_and_may_lack_values_gets_columns_as_the_message_says(tmp_path: Path) -> None:
    def problems(uri: Path, column: str) -> list[str]:
        findings = Findings()
        sink = {"lance": {"uri": str(uri)}, "mode": "AddColumns", "columns": [column]}
        source = {"lance": {"uri": str(uri)}}
        check_target(spec_of(source=source, sink=sink, steps=[{"call": "m:f"}]), Settings(), findings)
        return [problem.message for problem in findings.problems]

    def describe(uri: Path, column: str) -> object:
        return PylanceColumns(str(uri), Settings()).describe_with([column])

    rows, required = tmp_path / "rows.lance", pa.schema([("id", pa.int64()), pa.field("made", pa.int64(), nullable=False)])
    gone = "does not exist; correct its uri: columns are added to rows that are there"
    assert [problem.endswith(gone) for problem in problems(rows, "new")] == [True]
    with pytest.raises(NeedsChange, match="to whose rows columns are to be added; correct its uri"):
        describe(rows, "new")

    lance.write_dataset(pa.table({"id": [1], "made": [2]}, schema=required), rows)
    assert problems(rows, "new") == []
    describe(rows, "new")

    assert [problem.endswith("make it nullable (alter_columns)") for problem in problems(rows, "made")] == [True]
    with pytest.raises(NeedsChange, match=r"make it nullable \(alter_columns\), or name another one in sink\.columns"):
        describe(rows, "made")
    lance.dataset(rows).alter_columns({"path": "made", "nullable": True})
    assert problems(rows, "made") == []
    assert describe(rows, "made") is not None

    old, later = tmp_path / "old.lance", tmp_path / "later.lance"
    lance.write_dataset(pa.table({"id": [1]}), old, data_storage_version="legacy")
    with pytest.raises(
        NeedsChange, match="in which columns have no files of their own; write the dataset again with a later version"
    ):
        describe(old, "new")
    lance.write_dataset(lance.dataset(old).to_table(), later, data_storage_version="2.1")
    describe(later, "new")
