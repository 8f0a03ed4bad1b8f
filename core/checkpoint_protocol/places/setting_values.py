"""What a settings file is made of: strict models, secrets that may lie elsewhere, and the name of its place in messages."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Discriminator, SecretStr, Tag, model_validator

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.problems import NO_SECRET, UNION_MARK


class SettingsSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SecretRef(SettingsSection):
    """A secret that lies elsewhere: in an environment variable or a file (whose trailing line break is dropped)."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _names_one_place(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("exactly one of env and file is expected")
        return self

    def read(self, place: str) -> str:
        """Return the secret. NeedsChange, where it cannot be read, names the place of the settings that refer to it."""
        if self.env is not None:
            if self.env not in os.environ:
                message = f"the environment variable {self.env} is not set; set it where this runs, or correct its name: {place}"
                raise NeedsChange(reasons.MANIFEST_INVALID, message)
            return os.environ[self.env]
        assert self.file is not None
        try:
            return Path(self.file).read_text().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            message = f"the secret file {self.file} cannot be read: {why}; put it there, or correct its path: {place}"
            raise NeedsChange(reasons.MANIFEST_INVALID, message) from error


_TEXT: Final = f"{UNION_MARK}text"
_REFERENCE: Final = f"{UNION_MARK}reference"


def _kind_of_secret(value: object) -> str | None:
    if isinstance(value, str | SecretStr):
        return _TEXT
    return _REFERENCE if isinstance(value, dict | SecretRef) else None


#: Told apart before either is tried, so that what is wrong is said of the one that was meant.
Secret = Annotated[
    Annotated[SecretRef, Tag(_REFERENCE)] | Annotated[SecretStr, Tag(_TEXT)],
    Discriminator(
        _kind_of_secret,
        custom_error_type=NO_SECRET,
        custom_error_message="a text, {env: NAME} or {file: PATH} is expected",
    ),
]


def reveal(secret: SecretRef | SecretStr, place: str) -> str:
    """Return the secret's text. For the translations and the catalogs only; never for messages. `place`: as in `read`."""
    return secret.read(place) if isinstance(secret, SecretRef) else secret.get_secret_value()


def in_full(secret: SecretRef | SecretStr | None) -> Any:
    """Return a secret as it stands in the settings, for the private file that hands them to a driver and for nothing else."""
    if isinstance(secret, SecretStr):
        return secret.get_secret_value()
    return secret.model_dump() if secret is not None else None


# Where the settings of a process stand, in the words of who can change them.
#
# Given to the settings where a program is composed (the operator, a driver, the command line); messages that say what to change
# in them name it by this. Nothing else depends on it.


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
