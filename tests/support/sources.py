"""Sources as a manifest says them."""

from __future__ import annotations

import json
from typing import Any

from checkpoint_protocol.manifest.sources.source import Source


def source_of(plain: dict[str, Any]) -> Source:
    """Return the source of this section of a manifest."""
    return Source.model_validate_json(json.dumps(plain))
