"""What a run refuses of a manifest, `validate` refuses too. Every place in the source where a run does so is in the table below.

A place is a function that raises NeedsChange(ManifestInvalid) or NeedsChange(OutputSchemaWrong). Another reason is no mistake
of the manifest, or is what a run meets on its way. Whether `validate` asks it was read by a person, who added it here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from tests.support.messages import PACKAGES, ROOT

_REASONS: Final = {"MANIFEST_INVALID", "OUTPUT_SCHEMA_WRONG"}
#: `validate` calls it, from one of its checks.
_BY_VALIDATE: Final = "validate calls it"
_AT_OPENING: Final = "validate opens the same store, table or source by it"
_BY_ROWS: Final = "only rows that the steps have made tell it"
_BY_SPARK: Final = "only Spark reads the source, so that a driver finds it"
_IN_A_POD: Final = "of a process in a pod, or of its environment"
_NO_RUN: Final = "no run says it"

KNOWN: Final[Mapping[str, str]] = {
    "checkpoint_local.processes._storage_of": "it is about the settings of all writes",
    "checkpoint_formats.kafka.cluster.entry_of": _AT_OPENING,
    "checkpoint_formats.kafka.registry._connections": _AT_OPENING,
    "checkpoint_formats.kafka.registry.registry_of": _AT_OPENING,
    "checkpoint_protocol.places.outputs.refuse": _BY_VALIDATE,
    "checkpoint_protocol.places.setting_values.read": _AT_OPENING,
    "checkpoint_protocol.places.settings._named": _AT_OPENING,
    "checkpoint_protocol.places.source_paths.locate": _AT_OPENING,
    "checkpoint_protocol.places.storage._refuse_tokens_of_others": _AT_OPENING,
    "checkpoint_protocol.places.storage.disk_path": _AT_OPENING,
    "checkpoint_protocol.places.storage.entry_of": _AT_OPENING,
    "checkpoint_protocol.places.storage.lance_options": _AT_OPENING,
    "checkpoint_protocol.store.object_store.open_raw_store": _AT_OPENING,
    "checkpoint_protocol.manifest.where._refused": _BY_VALIDATE,
    "checkpoint_formats.rows.plain_types.decode_schema": "a schema that the driver has encoded, and no manifest's",
    "checkpoint_formats.files.buckets._store": _AT_OPENING,
    "checkpoint_formats.files.csv.dialect.__init__": _AT_OPENING,
    "checkpoint_formats.files.csv.reader.describe": _AT_OPENING,
    "checkpoint_formats.files.partitioned.describe": _AT_OPENING,
    "checkpoint_formats.kafka.cluster._admin": _AT_OPENING,
    "checkpoint_formats.kafka.take._with_metadata": _AT_OPENING,
    "checkpoint_formats.kafka.records._consumer": _AT_OPENING,
    "checkpoint_formats.lance.datasets.rows_refused": _BY_ROWS,
    "checkpoint_formats.stage_results.group_keys.refuse_keys": "the columns are those that the steps of a stage give",
    "checkpoint_formats.rows.type_names.parse_type": _BY_VALIDATE,
    "checkpoint_formats.rows.uniting.refuse_shared_files": _BY_VALIDATE,
    "checkpoint_formats.rows.uniting.unite": _BY_VALIDATE,
    "checkpoint_work.driver.attempt._asked_for": _BY_ROWS,
    "checkpoint_spark.process.gpus.with_variables": _IN_A_POD,
    "checkpoint_spark.process.gpus.put_in": _IN_A_POD,
    "checkpoint_spark.process.gpus.of": _IN_A_POD,
    "checkpoint_spark.dataframes.reading.refuse_repeated": _BY_SPARK,
    "checkpoint_spark.dataframes.programs.errors_of_spark": _BY_SPARK,
    "checkpoint_spark.dataframes.reading.read_source": _BY_SPARK,
    "checkpoint_spark.dataframes.reading.resolve": _BY_SPARK,
    "checkpoint_spark.dataframes.reading.of": _BY_SPARK,
    "checkpoint_work.tasks.failures.of_spark": _BY_SPARK,
    "checkpoint_spark.process.gpus.use_assigned_gpus": _IN_A_POD,
    "checkpoint_work.driver.output.await_target": _BY_ROWS,
    "checkpoint_work.process.settings._settings_alone": _IN_A_POD,
    "checkpoint_work.process.settings._read_storage": _IN_A_POD,
    "checkpoint_work.inputs.reading._refuse_other_characters": "compared with an attempt before, of which rows are sealed",
    "checkpoint_work.process.settings.record_keys": _IN_A_POD,
    "checkpoint_work.steps.values.schema_cast.check_columns": _BY_ROWS,
    "checkpoint_work.steps.columns.batch_as_declared": _BY_ROWS,
    "checkpoint_work.steps.engine._apply_to_no_rows": _BY_ROWS,
    "checkpoint_work.steps.row_numbers.one_for_each": _BY_ROWS,
    "checkpoint_work.steps.row_numbers.of_these": _BY_ROWS,
    "checkpoint_local.cli.files._warehouse": "of the settings, which validate reads by it",
    "checkpoint_local.cli.files.load_settings": _BY_VALIDATE,
    "checkpoint_local.cli.files._settings_absolute": _BY_VALIDATE,
    "checkpoint_local.cli.commands.run.run_write": "an argument of the command that the manifest does not go with",
    "checkpoint_operator.kube.client._translate": "what the API server refuses, of a pod",
    "checkpoint_commit.iceberg.target.refuse_keys": _BY_VALIDATE,
    "checkpoint_commit.iceberg.target.new_table": _BY_VALIDATE,
    "checkpoint_commit.iceberg.target.cannot_be_made": "what a catalog alone refuses; the rest is new_table's",
    "checkpoint_commit.iceberg.target.new_partition_spec": _BY_VALIDATE,
    "checkpoint_commit.lance.columns.schema_of_new": _BY_VALIDATE,
    "checkpoint_commit.lance.columns.refuse_keys": _BY_VALIDATE,
    "checkpoint_commit.lance.table.create": "what Lance alone refuses; the rest is schema_of_new's",
    "checkpoint_control.decision.triggers.next_time": _BY_VALIDATE,
    "checkpoint_control.views.failed_rows._types": _NO_RUN,
    "checkpoint_control.views.failed_rows.failed_rows": _NO_RUN,
    "checkpoint_local.preview._all_stages": _NO_RUN,
    "checkpoint_control.validation.fields.refusals": _BY_VALIDATE,
    "checkpoint_local.preview.stage_to_preview": _NO_RUN,
    "checkpoint_control.loop.looks.refuse_paths_of_pods": _IN_A_POD,
    "checkpoint_commit.sinks.table_types._schema": _BY_VALIDATE,
}


def functions() -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Give module, name and source of every function of the production code."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = str(path.relative_to(ROOT / package.partition("/")[0]).with_suffix("")).replace("/", ".")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    yield module, node.name, node


def _refuses(function: ast.FunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and node.args)
    return any(
        isinstance(call.func, ast.Name)
        and call.func.id == "NeedsChange"
        and isinstance(call.args[0], ast.Attribute)
        and call.args[0].attr in _REASONS
        for call in calls
    )


def test_each_refusal_of_a_manifest_is_known_to_validate_or_says_why_it_cannot_be() -> None:
    found = {f"{module}.{name}" for module, name, function in functions() if _refuses(function)}

    assert sorted(found - KNOWN.keys()) == [], "have validate ask it, too, or say in KNOWN why it cannot"
    assert sorted(KNOWN.keys() - found) == []
