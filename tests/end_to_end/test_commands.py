"""What a user sees: exit codes and one clear line for each thing that is wrong. No Spark starts in these."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import StorageEntry
from devtools.s3_server import S3Server
from tests.support.command_line import CommandLine
from tests.support.places import Place, on_disk, on_s3
from tests.support.slow import slow_except, slow_except_on
from tests.support.writes import SCHEMA, drive, manifest_for, reconciler_for, write_inputs


def errors_in(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("error:")]


@slow_except_on("place", "iceberg-sql-disk", "lance-s3")
def test_a_committed_write_says_so_and_exits_with_0(place: Place, tmp_path: Path) -> None:
    place.create(SCHEMA)
    manifest = manifest_for(place, write_inputs(tmp_path / "in"))
    drive(reconciler_for(manifest, place))

    code, output = CommandLine(tmp_path / "cli", place, manifest).run()

    assert code == 0, output
    assert "already committed" in output
    assert "400" in output


@slow_except_on("disk_place", "lance-disk")
def test_a_missing_table_is_one_line_with_the_way_out(disk_place: Place, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "cli", disk_place, manifest_for(disk_place, write_inputs(tmp_path / "in")))

    code, output = command.run()

    assert code == 1
    assert len(errors_in(output)) == 1
    assert "TableMissing" in output
    assert "create: true" in output


@slow_except_on("disk_place", "lance-disk")
def test_a_wrong_manifest_lists_each_problem_with_its_field_and_exits_with_2(disk_place: Place, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "cli", disk_place, manifest_for(disk_place, tmp_path))
    command.file.write_text(command.file.read_text().replace("backoffLimit", "backofLimit").replace("Append", "Merge"))

    code, output = command.run()

    assert code == 2
    assert any("spec.backofLimit" in line and "'backoffLimit'" in line for line in errors_in(output)), output
    assert any("spec.sink.mode" in line and "'Append', 'OverwriteAll'" in line for line in errors_in(output)), output


@slow_except_on("disk_place", "iceberg-sql-disk")
def test_a_changed_identity_is_refused(disk_place: Place, tmp_path: Path) -> None:
    disk_place.create(SCHEMA)
    drive(reconciler_for(manifest_for(disk_place, write_inputs(tmp_path / "in")), disk_place))
    other = manifest_for(disk_place, write_inputs(tmp_path / "other"))

    code, output = CommandLine(tmp_path / "cli", disk_place, other).run()

    assert code == 2
    assert "IdentityChanged" in output
    assert "spec.source" in output
    assert "metadata.name" in output


@pytest.mark.parametrize("kind", slow_except(["iceberg", "lance"], "iceberg"))
def test_wrong_credentials_are_one_line_that_names_the_settings_and_no_secret(
    kind: str, tmp_path: Path, s3_server: S3Server
) -> None:
    place = on_s3(tmp_path, kind, s3_server)
    entry = place.settings.storage[0]
    wrong = entry.model_copy(update={"secret_access_key": SecretStr("wrong-and-secret")})
    place.settings = place.settings.model_copy(update={"storage": (wrong,)})

    code, output = CommandLine(tmp_path / "cli", place, manifest_for(place, write_inputs(tmp_path / "in"))).run()

    assert code == 1
    assert len(errors_in(output)) == 1
    assert "CredentialsRefused" in output
    assert "settings" in output
    assert "wrong-and-secret" not in output


def test_an_unreachable_store_is_one_line_within_a_bounded_time(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "lance")
    place.settings = Settings(
        storage=(
            StorageEntry(
                prefix="s3://nowhere/",
                endpoint="http://127.0.0.1:9",
                access_key_id=SecretStr("a"),
                secret_access_key=SecretStr("b"),
            ),
        )
    )
    place.checkpoint_uri = "s3://nowhere/checkpoints"

    code, output = CommandLine(tmp_path / "cli", place, manifest_for(place, write_inputs(tmp_path / "in"))).run()

    assert code == 1
    assert len(errors_in(output)) == 1
    assert "StoreUnavailable" in output
    assert "s3://nowhere/checkpoints" in output


def test_an_unknown_catalog_lists_the_known_ones(tmp_path: Path) -> None:
    place = on_disk(tmp_path, "iceberg")
    manifest = manifest_for(place, write_inputs(tmp_path / "in"), sink={"iceberg": {"catalog": "tset", "table": "a.b"}})

    code, output = CommandLine(tmp_path / "cli", place, manifest).run()

    assert code == 2
    assert "'tset'" in output
    assert "there are: test" in output
