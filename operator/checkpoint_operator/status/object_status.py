"""Read and write the status of a CheckpointedWrite's object: leniently in, as the smallest patch out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from checkpoint_operator.crd.status_model import Status


def status_of(body: Mapping[str, Any]) -> Status:
    """Return the status in an object. One that cannot be read is as none: all of it can be told again."""
    try:
        return Status.model_validate_json(json.dumps(body.get("status") or {}))
    except ValidationError:
        return Status()


def status_patch(body: Mapping[str, Any], status: Status) -> dict[str, Any] | None:
    """Return the merge patch that brings an object's status to this one, if it has not changed meanwhile; None if it is so."""
    before: Mapping[str, Any] = body.get("status") or {}
    after = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    changes = _merge_patch(before, after)
    if not changes:
        return None
    return {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "status": changes}


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) from one object to another: what is not said in it stays, also within an object."""
    changes: dict[str, Any] = {}
    for name in {*before, *after}:
        old, new = before.get(name), after.get(name)
        if old != new:
            changes[name] = _merge_patch(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new
    return changes
