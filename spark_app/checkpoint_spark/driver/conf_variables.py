"""Variables of the driver's environment in properties of Spark: secrets stand in no manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


def with_variables(conf: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with each ${env:NAME} put in. NeedsChange(ManifestInvalid) if the environment does not have one."""

    def put_in(name: str, value: str) -> str:
        def of(match: re.Match[str]) -> str:
            found = environment.get(match[1])
            if found is None:
                raise NeedsChange(
                    reasons.MANIFEST_INVALID,
                    f"spec.sparkConf: {name} names the variable {match[1]}, which the driver's environment does not have; set it "
                    "(in a cluster: in spec.driver.template, from a Secret)",
                )
            return found

        return _VARIABLE.sub(of, value)

    return {name: put_in(name, value) for name, value in conf.items()}
