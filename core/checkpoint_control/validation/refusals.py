"""What in a manifest for a cluster keeps it from being run on one machine."""

from __future__ import annotations

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import Spec


def refusals(spec: Spec) -> dict[str, NeedsChange]:
    """Return what in a manifest for a cluster keeps it from being run on one machine, by field."""
    found = {}
    if spec.suspend:
        found["spec.suspend"] = NeedsChange(
            reasons.WRITE_SUSPENDED, "spec.suspend: it is set, so nothing is run; take it out, or say false"
        )
    if spec.code.config_map is not None:
        found["spec.code.configMap"] = NeedsChange(
            reasons.MANIFEST_INVALID,
            "spec.code.configMap: one machine has no ConfigMaps; say code.path (a folder) or code.uri (a .py, .zip or .whl file)",
        )
    if spec.checkpoint_volume is not None:
        field = "spec.source.program.stream.checkpointVolume"
        found[field] = NeedsChange(
            reasons.MANIFEST_INVALID,
            f"{field}: one machine has no PersistentVolumeClaims; leave it out, and say a folder on a disk in checkpoint.uri, "
            "below which Spark's own checkpoint is then",
        )
    return found
