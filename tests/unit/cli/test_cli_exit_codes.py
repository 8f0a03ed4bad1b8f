"""Exit codes: 2 for what is wrong in a manifest or settings file, whichever command finds it, and when."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_control.decision.actions import Finish, Stall
from checkpoint_local.cli import exits
from checkpoint_local.cli.main import main
from checkpoint_protocol.errors import CheckpointError, Corrupt, NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import ManifestInvalid, parse_manifest
from checkpoint_protocol.records import NoTarget
from tests.support.records import DIGEST, launch
from tests.support.stored_writes import StoredWrite


@pytest.fixture(autouse=True)
def _signals_stay() -> Iterator[None]:
    """`run` sets a handler of its own, in a process that it thinks its own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run(tmp_path: Path, *arguments: str) -> Result:
    environment = {"XDG_CONFIG_HOME": "/nonexistent", "XDG_STATE_HOME": str(tmp_path / "state")}
    return CliRunner(env=environment).invoke(main, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize("command", ["run", "validate", "status"])
def test_a_changed_identity_exits_with_2_from_every_command(tmp_path: Path, command: str) -> None:
    write = StoredWrite(tmp_path)
    write.begin()
    file = write.file
    file.write_text(file.read_text().replace("db.rows", "db.others"))

    result = run(tmp_path, command, str(file))

    assert result.exit_code == exits.MANIFEST_WRONG, result.output


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_catalog_that_the_settings_do_not_have_exits_with_2(tmp_path: Path, command: str) -> None:
    write = StoredWrite(tmp_path)

    result = run(tmp_path, command, str(write.file))

    assert result.exit_code == exits.MANIFEST_WRONG, result.output
    assert "'lake'" in result.stderr


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize("more", [{"suspend": True}, {"code": {"configMap": {"name": "steps"}}}])
def test_what_one_machine_cannot_do_exits_with_2(tmp_path: Path, command: str, more: dict[str, object]) -> None:
    write = StoredWrite(tmp_path)
    file = write.file
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"] |= more
    file.write_text(yaml.safe_dump(manifest))

    assert run(tmp_path, command, str(file)).exit_code == exits.MANIFEST_WRONG


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"steps": [{"call": "s:f", "input": "row", "output": {"v": "list<flaot>"}}]}, "spec.steps.0.output.v"),
        ({"source": {"files": {"format": "csv", "paths": ["in"], "types": {"day": "dat"}}}}, "spec.source.files.types.day"),
    ],
)
def test_a_type_that_nobody_knows_exits_with_2_before_any_attempt_begins(
    tmp_path: Path, more: dict[str, Any], place: str
) -> None:
    write = StoredWrite(tmp_path)
    file = write.file
    manifest = yaml.safe_load(file.read_text())
    manifest["spec"] |= {"sink": {"none": {}}, **more}
    file.write_text(yaml.safe_dump(manifest))

    result = run(tmp_path, "run", str(file))

    assert result.exit_code == exits.MANIFEST_WRONG, result.output
    assert f"{place}: unknown type" in result.stderr
    assert not list(write.uri.rglob("launch"))


def test_a_source_that_holds_the_output_is_refused_before_anything_is_recorded_and_another_output_is_taken(
    tmp_path: Path,
) -> None:
    write = StoredWrite(tmp_path)
    manifest = yaml.safe_load(write.file.read_text())
    source = {"files": {"format": "parquet", "paths": [str(tmp_path / "lake")]}}
    manifest["spec"] |= {"source": source, "sink": {"lance": {"uri": str(tmp_path / "lake" / "rows")}}}
    file = tmp_path / "write.yaml"
    file.write_text(yaml.safe_dump(manifest))

    refused = run(tmp_path, "run", str(file))
    manifest["spec"]["sink"]["lance"]["uri"] = str(tmp_path / "out" / "rows")
    file.write_text(yaml.safe_dump(manifest))
    mended = run(tmp_path, "status", str(file), "-o", "json")

    assert refused.exit_code == exits.MANIFEST_WRONG, refused.output
    assert "let each have a folder of its own" in refused.stderr
    assert [path for path in write.uri.rglob("*") if path.is_file()] == []
    assert yaml.safe_load(mended.stdout)["identityChanged"] == []


def test_a_source_folder_that_is_the_checkpoint_folder_is_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(b"")
    manifest = yaml.safe_load(StoredWrite(tmp_path).file.read_text())
    source = {"files": {"format": "parquet", "paths": [str(folder)]}}
    manifest["spec"] |= {"source": source, "sink": {"none": {}}, "checkpoint": {"uri": str(folder)}}
    file = tmp_path / "write.yaml"
    file.write_text(yaml.safe_dump(manifest))

    refused = run(tmp_path, "run", str(file))

    assert refused.exit_code == exits.MANIFEST_WRONG, refused.output
    assert "let each have a folder of its own" in refused.stderr
    assert [path.name for path in folder.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("command", ["run", "validate", "status"])
def test_a_checkpoint_uri_that_is_none_exits_with_2(tmp_path: Path, command: str) -> None:
    write = StoredWrite(tmp_path)
    file = write.file
    file.write_text(file.read_text().replace(str(write.uri), "ftp://host/folder"))

    assert run(tmp_path, command, str(file)).exit_code == exits.MANIFEST_WRONG


def test_a_uri_of_inspect_that_is_none_exits_with_2(tmp_path: Path) -> None:
    assert run(tmp_path, "inspect", "ftp://host/folder").exit_code == exits.MANIFEST_WRONG


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ManifestInvalid(("spec.steps: wrong",)), 2),
        (NeedsChange("ManifestInvalid", "source.files.types.day: unknown type"), 2),
        (NeedsChange("IdentityChanged", "another sink"), 2),
        (NeedsChange("CodeMissing", "there is no module"), 2),
        (NeedsChange("CodeFailed", "a step raised"), 1),
        (NeedsChange("CodeChanged", "rows are sealed with other code"), 4),
        (NeedsChange("SourceMissing", "no file"), 1),
        (Retryable("StoreUnavailable", "no answer"), 1),
        (Corrupt("RecordUnreadable", "a record"), 1),
    ],
)
def test_an_error_has_one_code_also_where_a_driver_has_found_it(error: CheckpointError, code: int) -> None:
    assert exits.code_of(error) == code
    assert exits.code_of_end(Stall(error.reason, error.message)) == code


def test_an_error_names_the_command_that_explains_its_reason() -> None:
    assert exits.lines_of(NeedsChange("TableMissing", "there is no table a.b")) == [
        "error: TableMissing: there is no table a.b (more: checkpointed-write explain TableMissing)"
    ]
    assert exits.line_of("ReasonOfALaterRelease", "no text here") == "error: ReasonOfALaterRelease: no text here"
    assert exits.lines_of(ManifestInvalid(("spec.steps: wrong",))) == ["error: spec.steps: wrong"]


def test_a_write_that_came_to_its_end_exits_with_0() -> None:
    assert exits.code_of_end(Finish()) == exits.COMMITTED


def test_ctrl_c_exits_with_130_from_every_command() -> None:
    @click.group(cls=type(main))
    def group() -> None:
        pass

    @group.command()
    def waits() -> None:
        raise KeyboardInterrupt

    assert CliRunner().invoke(group, ["waits"]).exit_code == exits.INTERRUPTED


def test_changed_code_that_waits_for_a_person_exits_with_4_and_the_command_that_approves_it(tmp_path: Path) -> None:
    write = StoredWrite(tmp_path)
    manifest = yaml.safe_load(write.file.read_text())
    manifest["spec"] |= {"sink": {"none": {}}, "onCodeChange": "Ask"}
    write.given = parse_manifest(manifest)
    write.begin()
    launched = launch(1, (), code_digest=DIGEST).model_copy(update={"source": write.given.spec.source, "target": NoTarget()})
    write.ledger.attempts.put_launch(launched.model_copy(update={"sink_format": "none"}))
    write.plan()
    write.seal(0, rows=10)
    write.close()

    result = run(tmp_path, "run", str(write.file))

    assert result.exit_code == exits.AWAITS_APPROVAL, result.output
    assert "CodeChanged: 10 rows are sealed, and attempt 1 sealed rows with other code" in result.stderr
    assert f"approve the code as it is now: checkpointed-write run {write.file} --approve Continue (or Restart)" in result.stderr
    assert write.ledger.attempts.list_attempts() == [1]


def test_an_approval_that_nothing_asks_for_exits_with_2(tmp_path: Path) -> None:
    manifest = yaml.safe_load(StoredWrite(tmp_path).file.read_text())
    manifest["spec"]["sink"] = {"none": {}}
    file = tmp_path / "none.yaml"
    file.write_text(yaml.safe_dump(manifest))

    result = run(tmp_path, "run", str(file), "--approve", "continue")

    assert result.exit_code == exits.MANIFEST_WRONG
    assert "spec.onCodeChange: it is Continue, so that nothing is to be approved" in result.stderr


def test_a_state_folder_that_cannot_be_used_is_one_line_with_its_place(tmp_path: Path) -> None:
    """Not a traceback: logs and locks lie there."""
    file = tmp_path / "state"
    file.write_text("a file")
    write = StoredWrite(tmp_path)
    manifest = yaml.safe_load(write.file.read_text())
    manifest["spec"]["sink"] = {"none": {}}
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(manifest))

    result = run(tmp_path, "run", str(tmp_path / "none.yaml"))

    assert result.exit_code == exits.FAILED
    assert str(file) in result.stderr
    assert "XDG_STATE_HOME" in result.stderr


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize("depth", [40, 3000])
@pytest.mark.parametrize("of", ["manifest", "settings"])
def test_yaml_that_is_nested_too_deep_exits_with_2_and_names_the_line(tmp_path: Path, command: str, depth: int, of: str) -> None:
    write = StoredWrite(tmp_path)
    deep = tmp_path / "deep.yaml"
    deep.write_text(f"{write.file.read_text()}\nmore:\n  {'[' * depth}{']' * depth}\n")

    arguments = [str(deep)] if of == "manifest" else [str(write.file), "--settings", str(deep)]
    result = run(tmp_path, command, *arguments)

    assert result.exit_code == exits.MANIFEST_WRONG, result.output
    assert "it is nested more than 32 deep" in result.stderr
    assert f"line {len(deep.read_text().splitlines())}" in result.stderr


def merges() -> str:
    """Sixteen lines, each of which merges the one before ten times."""
    lines = ["x0: &x0 {a: 1}"]
    lines += [f"x{number}: &x{number} {{<<: [{', '.join([f'*x{number - 1}'] * 10)}]}}" for number in range(1, 16)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"a: {'9' * 5000}", "is no value here: Exceeds the limit"),
        ("a: !!timestamp 2026-02-30", "tag:yaml.org,2002:timestamp"),
        ("a: !!bool 2026-02-30", "'2026-02-30' is no bool"),
        (merges(), "it merges too many values (<<)"),
    ],
    ids=["digits", "tag", "form", "merges"],
)
def test_yaml_that_python_has_no_value_for_is_a_wrong_manifest_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "write.yaml"
    path.write_text(f"kind: CheckpointedWrite\n{text}\n")

    result = CliRunner().invoke(main, ["validate", str(path)])

    assert result.exit_code == 2
    assert f"{path}: is not YAML: " in result.stderr
    assert told in result.stderr
    assert "line " in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_ordinary_merges_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "write.yaml"
    path.write_text("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\n")

    result = CliRunner().invoke(main, ["validate", str(path)])

    assert "CheckpointedWrite are expected" in result.stderr


def test_what_a_run_says_is_not_broken_where_it_goes_to_a_file(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": "/nonexistent", "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "40"}

    result = CliRunner(env=environment).invoke(main, ["run", "--watch", str(StoredWrite(tmp_path).file)])

    assert result.stderr.splitlines() == ["error: --watch goes by spec.trigger, and there is none; say every or cron there"]
