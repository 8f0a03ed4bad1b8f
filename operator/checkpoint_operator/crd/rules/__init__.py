"""The CEL rules of the CRD: what the models' validators say, and what may not change. The API server enforces them.

A table by model. Paths in the rules are relative to the model's section; `message` is what kubectl prints. Rules that look at
`oldSelf` are checked at updates only. tests/contract/kubernetes/test_crd_on_a_real_api_server.py holds them against the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from checkpoint_operator.crd import status_model
from checkpoint_operator.crd.rules.cel import Rule
from checkpoint_operator.crd.rules.runs import RUN_RULES
from checkpoint_operator.crd.rules.sinks import SINK_RULES
from checkpoint_operator.crd.rules.sources import FIXED_SOURCE, SOURCE_RULES
from checkpoint_protocol.manifest import spec as manifest

__all__ = ["LIST_KEYS", "RULES", "Rule"]

RULES: Final[Mapping[type[BaseModel], tuple[Rule, ...]]] = {
    manifest.CheckpointedWrite: (
        Rule(
            f"self.metadata.name.size() <= {manifest.MAX_NAME_LENGTH}",
            f"the name may have {manifest.MAX_NAME_LENGTH} characters at most: the names of its pods begin with it",
        ),
        Rule(
            "!self.metadata.name.contains('.')",
            "the name may have lower case letters, digits and '-' only: the names of its pods begin with it",
        ),
        *FIXED_SOURCE,
    ),
    **SOURCE_RULES,
    **SINK_RULES,
    **RUN_RULES,
}

#: Lists whose items are told apart by a field, so that server-side apply merges them.
LIST_KEYS: Final[Mapping[type[BaseModel], str]] = {status_model.Condition: "type"}
