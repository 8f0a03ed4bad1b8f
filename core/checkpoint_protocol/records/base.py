"""What every record is made of: kinds of values, pieces, the whole stored object, a folder of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from checkpoint_protocol.plain_values import of_plain_values

#: No record is larger: it is refused before it is put, and what is found that is larger was not written by us.
MAX_RECORD_BYTES = 64 << 20

#: An attempt has no more tasks: a million files is what an input is made for, and each task has one of them at the least.
MAX_TASKS = 1_000_000
#: A hundred of each of its tasks: whoever reads them has a byte for each.
MAX_SEALS = 100 * MAX_TASKS


def without_surrogates(text: object) -> object:
    # A message may quote a file name that is no UTF-8; such text can be neither validated nor stored.
    return text.encode("utf-8", "backslashreplace").decode() if isinstance(text, str) else text


Uid = Annotated[str, Field(pattern=r"^[0-9a-zA-Z][0-9a-zA-Z-]{0,62}$")]
Token = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
#: A pattern, and no function of ours: a commit reads millions of them.
Base64 = Annotated[str, Field(pattern=r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
MOST_COUNTED: Final = (1 << 63) - 1
Count = Annotated[int, Field(ge=0, le=MOST_COUNTED)]
Number = Annotated[int, Field(ge=1, lt=1 << 31)]


def later(default: Any) -> Any:
    """Return a field that is stored only where it is not the default."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Part(BaseModel):
    """A piece of a record."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = of_plain_values(handler(source))
        return schema


class Record(Part):
    """A whole stored object. Subclasses fix `kind` and `version`.

    `most_bytes`: none of this kind is larger, stored as it is. Whoever reads one goes by it before the body comes; so it has to
    be more than any release has put.
    """

    most_bytes: ClassVar[int] = MAX_RECORD_BYTES
    #: Whether all that it is made of is; see `plain_values.py`. What has pieces of a manifest is not.
    is_of_plain_values: ClassVar[bool] = True

    token: Token


@dataclass(frozen=True, slots=True)
class Output:
    """A folder that a write puts files into. `samples` are names such as they have, below it."""

    title: str
    uri: str
    samples: tuple[str, ...]
