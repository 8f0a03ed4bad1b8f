"""pyiceberg's private names that the product uses: what they do may change in any release, and nobody would say so.

Who takes another release of pyiceberg reads what has changed in those that are named here, and in who uses them.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg import manifest, schema
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.expressions import visitors
from pyiceberg.table import ManifestGroupPlanner

ROOT: Final = Path(__file__).parents[3]

#: By its name what defines it, and the beginning of the digest of its source text.
PINNED: Final[dict[str, tuple[Any, str]]] = {
    "_InclusiveMetricsEvaluator": (visitors._InclusiveMetricsEvaluator, "b72a9bc0"),
    "_StrictMetricsEvaluator": (visitors._StrictMetricsEvaluator, "d5853cf6"),
    "_build_metrics_evaluator": (ManifestGroupPlanner._build_metrics_evaluator, "74b74657"),
    "_build_residual_evaluator": (ManifestGroupPlanner._build_residual_evaluator, "64fc34b3"),
    "_convert_schema_if_needed": (Catalog._convert_schema_if_needed, "d8efd298"),
    "_convert_glue_to_iceberg": (GlueCatalog._convert_glue_to_iceberg, "93ed3a62"),
    "_inherit_from_manifest": (manifest._inherit_from_manifest, "b2b15210"),
    "_lazy_id_to_field": (schema.Schema._lazy_id_to_field, "ee875db5"),
    "_load_file_io": (Catalog._load_file_io, "82be8a6c"),
    "_resolve_table_location": (MetastoreCatalog._resolve_table_location, "2c3ff234"),
    # Fields of a writer.
    **dict.fromkeys(("_added_files", "_added_rows", "_partitions", "_writer"), (manifest.ManifestWriter, "40ccd83b")),
}


def used() -> Iterator[str]:
    """Give the private names of pyiceberg that modules of the product import, override or name, as far as they are pinned."""
    for file in (file for folder in ("core", "operator", "spark_app", "local") for file in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(file.read_text())
        imports = [
            node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg")
        ]
        yield from (alias.name for node in imports for alias in node.names if alias.name.startswith("_"))
        if imports:
            yield from (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in PINNED)
            yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in PINNED)


def test_each_private_name_that_is_used_is_pinned_and_no_other() -> None:
    assert set(used()) == set(PINNED)


@pytest.mark.parametrize("name", PINNED)
def test_what_a_private_name_stands_for_is_as_it_was_read(name: str) -> None:
    defined, digest = PINNED[name]

    source = inspect.getsource(inspect.unwrap(getattr(defined, "func", defined)))

    found = hashlib.sha256(source.encode()).hexdigest()[:8]

    assert found == digest, f"pyiceberg has changed {name}: read what it does now, and what we do with it; then pin {found}"
