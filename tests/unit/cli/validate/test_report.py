"""The report of `checkpointed-write validate`: everything that is wrong, each with its field, and nothing changed on the way."""

from __future__ import annotations

import lance
import yaml

from checkpoint_local.cli.files import load_manifest
from tests.support.grounds import Ground, Look, catalog_settings
from tests.support.stored_writes import StoredWrite
from tests.support.writes import rows_of
from tests.unit.cli.validate.looks import (
    NO_TABLE,
    launched,
    of_csv,
    stored,
)


def test_a_right_write_exits_with_0_and_says_what_a_run_would_do(ground: Ground) -> None:
    result = ground.run()

    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    size = sum(path.stat().st_size for path in ground.source.iterdir()) / 1024
    assert f"source 2 files, {size:.1f} KiB, 100 rows" in lines
    assert "rows by file and row number in it" in lines
    assert "target lake.db.rows: exists" in lines
    assert f"checkpoint {ground.folder / 'checkpoints'}: exists and honours put-if-absent" in lines
    assert "write not begun: a run would begin it" in lines
    assert lines[-1] == "not tried writing to the table"
    assert result.stderr == ""


def test_the_prediction_has_stable_names_and_is_the_same_in_yaml(ground: Ground) -> None:
    report = ground.report()

    assert yaml.safe_load(ground.run("-o", "yaml").stdout) == report
    prediction = report["prediction"]
    assert prediction["tasks"].pop("why")
    tasks = prediction["tasks"].pop("atMost")
    assert tasks >= 2
    assert prediction["dataFiles"].pop("why")
    assert prediction.pop("cores") >= 1
    assert prediction == {
        "sourceFiles": 2,
        "sourceBytes": sum(path.stat().st_size for path in ground.source.iterdir()),
        "sourceRows": 100,
        "columns": [],
        "rowIdentity": "file and row number in it",
        "tasks": {"atLeast": tasks},
        "dataFiles": {"atLeast": tasks, "atMost": None},
        "target": "lake.db.rows",
        "targetExists": True,
        "targetWouldBeCreated": False,
        "whatACommitDoes": "Append: rows are added, and the table's stay; without any, the table stays as it is",
        "checkpointUri": str(ground.folder / "checkpoints"),
        "checkpointExists": True,
        "aCrashCosts": "at most 1m of each task's work, or a twentieth of the time that it has been at work, if that is longer "
        "(at most 10m)",
        "write": "not begun: a run would begin it",
        "notTried": "writing to the table",
    }


def test_validating_changes_nothing_where_everything_exists(bare_ground: Ground) -> None:
    bare_ground.make_table()
    (bare_ground.folder / "checkpoints").mkdir()
    bare_ground.file.touch()
    before = bare_ground.everything()

    assert bare_ground.run().exit_code == 0

    assert bare_ground.everything() == before


def test_validating_makes_no_folder_catalog_or_table_that_a_run_would_make(bare_ground: Ground) -> None:
    bare_ground.spec["sink"]["create"] = True
    bare_ground.file.touch()
    before = bare_ground.everything()

    would = ("would.targetExists: False", "would.targetWouldBeCreated: True", "would.checkpointExists: False")
    not_tried = "making the table and writing to it; put-if-absent in the checkpoint store, which a run would make"
    bare_ground.see(Look((*would, f"would.notTried: {not_tried}"), bare=True))

    assert bare_ground.everything() == before


def test_a_lance_dataset_is_looked_at_without_giving_it_an_identity(bare_ground: Ground) -> None:
    bare_ground.see(Look("would.targetExists: True", "sink: {lance: {uri: rows.lance}}", files={"rows.lance": rows_of([1])}))

    assert lance.dataset(str(bare_ground.folder / "rows.lance")).version == 1


def test_a_missing_dataset_without_create_is_a_problem_and_is_not_made(bare_ground: Ground) -> None:
    bare_ground.see(Look("spec.sink.lance.uri: ...", "sink: {lance: {uri: rows.lance}}"))

    assert not (bare_ground.folder / "rows.lance").exists()


def test_all_problems_are_listed_at_once_each_with_its_field(ground: Ground) -> None:
    ground.change(Look("", "source.columns: [id, txet], sink.iceberg.catalog: laek", call="steps:missing"))
    ground.java_home = ground.folder
    (ground.folder / "checkpoints").rmdir()
    (ground.folder / "checkpoints").write_text("")

    result = ground.run()

    assert result.exit_code == 2
    assert result.stdout == ""
    lines = ground.file.read_text().splitlines()
    (call, column, catalog, uri) = (
        next(number for number, line in enumerate(lines, 1) if part in line) for part in ("call:", "txet", "catalog:", "uri:")
    )
    assert [line.partition(": ")[0] + ": " + line.split(": ")[1] for line in result.stderr.splitlines()[1:-1]] == [
        f"{ground.file}:{call}: spec.steps.0.call",
        f"{ground.file}:{column}: spec.source.columns.1",
        f"{ground.file}:{catalog}: spec.sink.iceberg.catalog",
        f"{ground.file}:{uri}: spec.checkpoint.uri",
    ]
    assert result.stderr.startswith("java: ")
    assert result.stderr.splitlines()[-1] == "5 problems found; nothing was run"
    assert [problem["place"] for problem in ground.report()["problems"]] == [
        None,
        *(f"{ground.file}:{number}" for number in (call, column, catalog, uri)),
    ]


def test_a_problem_of_the_settings_says_their_file_and_line(ground: Ground) -> None:
    ground.settings.write_text(catalog_settings({"type": "rest", "tokn": "x", "uri": "http://lake"}))

    (problem,) = ground.report()["problems"]

    assert (problem["path"], problem["place"]) == ("settings.catalogs.lake.tokn", f"{ground.settings}:3")


def test_without_java_the_problem_names_java(bare_ground: Ground) -> None:
    java, bare_ground.java_home = bare_ground.java_home, bare_ground.folder / "nowhere"

    bare_ground.see(Look("java: ...set JAVA_HOME..."), Look(prepare=lambda ground: setattr(ground, "java_home", java)))


def test_the_types_of_csv_columns_are_shown(ground: Ground) -> None:
    ground.change(of_csv("", "id,text\n007,a\n"))

    lines = [" ".join(line.split()) for line in ground.run().stdout.splitlines()]

    at = lines.index("columns id: string ('007' in line 2 is no number that can be written back as it stands)")
    assert lines[at + 1] == "text: string ('a' in line 2 is text)"


def test_more_columns_than_a_screen_shows_are_counted(ground: Ground) -> None:
    ground.change(of_csv("", ",".join(f"c{number}" for number in range(60)) + "\n", NO_TABLE))

    assert "and 10 more, which -o json shows" in ground.run().stdout


def test_a_changed_identity_is_a_problem_of_the_section(bare_ground: Ground) -> None:
    bare_ground.see(
        Look(prepare=stored(launched)),
        Look("spec.source: ...undo the change...", "source.files.paths: [in/*]"),
        Look("", "source.files.paths: [in]"),
        Look("", "source.files.paths: [in/*]", prepare=lambda ground: ground.document["metadata"].update(name="another")),
    )


def test_an_unreadable_record_of_the_write_is_a_problem_of_the_checkpoint(ground: Ground) -> None:
    write = StoredWrite(ground.folder, given=load_manifest(ground.file))
    write.begin()
    write.commit()
    write.break_record(write.ledger.at.commit_record)

    (problem,) = ground.report()["problems"]

    assert problem["path"] == "spec.checkpoint.uri"
    assert write.ledger.at.commit_record in problem["message"]


def test_an_object_store_is_probed_and_a_bucket_that_is_not_there_is_a_problem(on_a_server: Ground) -> None:
    (storage,) = yaml.safe_load(on_a_server.settings.read_text())["storage"]
    anywhere = yaml.safe_dump({"storage": [{**storage, "prefix": "s3://"}]})
    on_a_server.see(
        Look(("would.checkpointExists: True", "would.targetExists: True"), bare=True),
        Look(
            "spec.checkpoint.uri: ...bucket...",
            "checkpoint.uri: 's3://no-such-bucket-here/checkpoints'",
            files={"settings.yaml": anywhere},
        ),
    )


def test_parquet_in_a_bucket_is_listed_and_its_footers_are_read(on_a_server: Ground) -> None:
    on_a_server.see(
        Look(("would.sourceFiles: 1", "would.sourceRows: 7"), bare=True),
        Look("spec.source.columns.1: ...", "source.columns: [id, nosuch]"),
    )
