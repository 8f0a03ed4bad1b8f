"""What went wrong with an input file or a source table, said so that a person can act."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, cause_of
from checkpoint_protocol.places.setting_values import SettingsPlace
from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.store.object_store import translate_store_error

#: Words of pyarrow's OSErrors that are about content. Anything else from a bucket may be the network: that is tried again.
_ABOUT_CONTENT: Final = re.compile(
    r"inflate|compress|thrift|corrupt|parquet|snappy|zstd|brotli|lz4|gzip|unexpected end of stream", re.I
)
_REFUSED: Final = re.compile(r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|HTTP status 40[13]", re.I)


def unreadable(path: str, problem: str, remedy: str) -> NeedsChange:
    return NeedsChange(reasons.SOURCE_UNREADABLE, f"source file {path}: {problem}; {remedy}")


def vanished(path: str) -> NeedsChange:
    return changed(path, "it is gone or shorter than it was")


def changed(path: str, difference: str) -> NeedsChange:
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"source file {path} was replaced or removed while rows of it are missing ({difference}); put the old file back, or "
        "start a new write",
    )


def explain(error: Exception) -> str:
    """Return pyarrow's message on one line. Row numbers go: they count within the part that was parsed."""
    text = re.sub(r"Row #\d+: | in row \d+", "", cause_of(str(error)))
    return text[:600].rstrip(". ")


@contextmanager
def reading(path: str, problem: str, remedy: str, settings: SettingsPlace) -> Iterator[None]:
    """Translate what pyarrow raises while a file is opened, read or parsed. `settings`: where those of its bucket stand."""
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise vanished(path) from error
    except OSError as error:
        if _is_about_content(error, path):
            raise unreadable(path, f"{problem}: {explain(error)}", remedy) from error
        if _REFUSED.search(str(error)):
            raise translate_store_error(PermissionError(str(error)), path, settings) from error
        raise translate_store_error(error, path, settings) from error
    except (pa.ArrowException, ValueError, UnicodeDecodeError) as error:
        raise unreadable(path, f"{problem}: {explain(error)}", remedy) from error


def _is_about_content(error: OSError, path: str) -> bool:
    on_disk = not locate(path).root
    return error.errno is None and (on_disk or _ABOUT_CONTENT.search(str(error)) is not None)


def gone(what: str, of: str, keep: str) -> NeedsChange:
    """A part of the pinned table is gone while rows of it are missing. `keep` says what should have kept it."""
    return NeedsChange(
        reasons.SOURCE_CHANGED,
        f"source: {what} of {of} is gone while rows of it are missing; {keep}; start a new write for what is left",
    )


def moved(what: str, remedy: str) -> NeedsChange:
    """Since the last epoch more happened to the table than that rows were appended."""
    return NeedsChange(reasons.SOURCE_CHANGED, f"source: {what}; {remedy}")
