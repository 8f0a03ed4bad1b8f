"""What stages of an epoch have in common, whatever they do: see `ports.Stage`."""

from __future__ import annotations

import hashlib
from typing import Final

from checkpoint_protocol.manifest.spec import Spec

#: Of attempts that run no code of the user: an edit of it is no reason to begin anew.
NO_CODE: Final = hashlib.sha256(b"").hexdigest()


def spec_of_stage(spec: Spec) -> Spec:
    """Return a stage's manifest with what is the same for all stages.

    The stage ends with its epoch, so that no `runNonce` begins another one; it adds what it makes, whatever the epoch does then.
    """
    sink = spec.sink.model_copy(update={"mode": "Append", "where": None})
    return spec.model_copy(update={"run_nonce": "", "sink": sink})
