"""Which of Spark's properties a manifest may set: none that holds a secret, none that reaches beyond the pods of the write.

Expressions are those of the CRD's rules too, so that they are without lookahead, and short: what a rule may cost is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checkpoint_protocol.manifest.rules import Rule, none_is, text

#: A name goes to Spark in front of a = that is the first one.
NAME: Final = r"^spark\.[^=\s]+$"
#: In a property's name these say that its value is a secret, ...
SECRET_NAME: Final = (
    r"(?i)(pass(word|wd|phrase)|pwd|secret|token|credential|(access|account|private|api)[._-]?key|"  # noqa: S105 a pattern
    r"[._-]sas[._-]|[._-]auth$)"
)
#: ... but for what only says how, or where, one is got.
NO_SECRET_NAME: Final = r"(?i)(provider|enabled|bitlength|file|path|class|interval|ratio|use_ip|type)$"  # noqa: S105 a pattern or a word, no secret
SECRET_VALUE: Final = r"^(\$\{env:[^}]+\}|true|false)$"  # noqa: S105 a pattern or a word, no secret
#: A password in a text: after its name (password, passwd, pwd), or in a URL.
HIDDEN_SECRET: Final = r"(?i)p(ass)?wo?r?d=[^$]|://[^/@:$]*:[^/@$]+@"  # noqa: S105 a pattern or a word, no secret


@dataclass(frozen=True, slots=True)
class Refused:
    """Properties that are not a manifest's. `pattern`: what their names are, from their start on."""

    pattern: str
    remedy: str


_POD: Final = r"^spark\.kubernetes\.(driver|executor)\."
REFUSED: Final = (
    Refused(
        r"^spark\.(master$|submit\.deployMode$|kubernetes\.(driver\.master$|context$))",
        "the master is the API server of the pod's own cluster (on one machine, this process); leave it out",
    ),
    Refused(r"^spark\.kubernetes\.namespace$", "pods are made in the namespace of the write; leave it out"),
    Refused(rf"{_POD}(podTemplate|annotation\.|label\.)", "say driver.template or executor.template"),
    Refused(rf"{_POD}pod\.featureSteps$", "say driver.template or executor.template"),
    Refused(rf"{_POD}volumes\.", "say volumes and volumeMounts in driver.template or executor.template"),
    Refused(rf"{_POD}(secrets|secretKeyRef)\.", "say env with valueFrom, or a volume, in driver.template or executor.template"),
    Refused(
        r"^spark\.kubernetes\.container\.image\.pullSecrets$", "say imagePullSecrets in driver.template and executor.template"
    ),
    Refused(
        r"^spark\.kubernetes\.(authenticate\.|.*[sS]erviceAccount)", "say serviceAccountName of the spec; executors have no token"
    ),
)


def _no_property(condition: str, message: str) -> Rule:
    return none_is(condition, "self.sparkConf", message, "sparkConf")


#: Of the whole spec.
RULES: Final = (
    _no_property(f"!one.matches({text(NAME)})", "'{}' is no property of Spark (they begin with 'spark.', without = or spaces)"),
    *(
        _no_property(
            f"one.matches({text(refused.pattern)})",
            f"{{}} would change more than a manifest may set for its pods: {refused.remedy}",
        )
        for refused in REFUSED
    ),
    _no_property(
        f"one.matches({text(SECRET_NAME)}) && !one.matches({text(NO_SECRET_NAME)}) && "
        f"!self.sparkConf[one].matches({text(SECRET_VALUE)})",
        "{} is a secret; say ${env:NAME}, a variable of the driver's environment",
    ),
    _no_property(
        f"self.sparkConf[one].matches({text(HIDDEN_SECRET)})",
        "{} has a password in it; say ${env:NAME} in its place, a variable of the driver's environment",
    ),
)
