"""Where the settings of a process stand, in the words of who can change them.

Given to the settings where a program is composed (the operator, a driver, the command line); messages that say what to change in
them name it by this. Nothing else depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SettingsPlace:
    """`form`: how a field is named there, with {field} for its path in the settings, such as storage or catalogs.lake.uri."""

    form: str

    def name(self, field: str) -> str:
        return self.form.format(field=field)


SETTINGS_FILE: Final = SettingsPlace("{field} in the settings file")
#: Of the command line, where no settings file was found.
NO_SETTINGS_FILE: Final = SettingsPlace(
    "{field} in a settings file (there is none: make checkpointed-write.settings.yaml beside the manifest, or name a file with "
    "--settings or $CHECKPOINTED_WRITE_SETTINGS)"
)
CHART_VALUES: Final = SettingsPlace(
    "settings.{field} in the chart's values (or {field} in the Secret that settings.existingSecret names)"
)
#: Of driver and executor pods, which have storage only.
STORAGE_SECRET: Final = SettingsPlace(
    "{field} in the pod's Secret (key storage.json; made from workloads.storage in the chart's values, or the one that "
    "workloads.storageSecretName or spec.storageSecretName names)"
)
