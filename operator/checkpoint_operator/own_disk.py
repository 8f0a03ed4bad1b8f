"""What a manifest may not name in a cluster: paths. Checked before every use of a store or table, deletion included."""

from __future__ import annotations

from checkpoint_protocol.manifest.spec import ManifestInvalid, Spec
from checkpoint_protocol.places.uris import local_path


def refuse_own_disk(spec: Spec, *, allow_local_paths: bool) -> None:
    """Whoever may apply a manifest has no business with the operator's disk, and drivers could not see what is on it.

    The settings of the operator refuse it too, wherever something is opened; here the field is named.
    """
    of_sink = {f"spec.sink.{spec.sink.format}.{field}": uri for field, uri in spec.sink.named.uris.items()}
    uris = {"spec.checkpoint.uri": spec.checkpoint.uri, **of_sink}
    for field_path, uri in uris.items():
        if local_path(uri) is not None and not allow_local_paths:
            raise ManifestInvalid(
                (f"{field_path}: {uri} is a path; in a cluster it is to be in an object store (s3://, gs://, az://)",)
            )
