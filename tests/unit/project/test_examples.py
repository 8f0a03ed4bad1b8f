"""The manifests that people begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_operator.yaml_documents import parse_document
from checkpoint_protocol.manifest.spec import parse_manifest

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("**/flights-*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_an_example_that_is_applied_again_is_the_same_write(path: Path) -> None:
    """An object that was deleted after its time to live is another write when it is applied again, and doubles its rows."""
    assert parse_manifest(parse_document(path.read_text())).spec.ttl_seconds_after_finished is None
