"""Which files of a write's code hide modules that the driver itself needs: asked by who takes the code and who imports it.

The code comes first on the import path. A module `email.py` there is what every library gets that imports `email`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange

OWN: Final = frozenset(
    {
        *("checkpoint_commit", "checkpoint_control", "checkpoint_formats", "checkpoint_local", "checkpoint_operator"),
        *("checkpoint_protocol", "checkpoint_spark", "checkpoint_work", "checkpointed_writes"),
    }
)
#: What the driver's packages and their dependencies are imported as. A list, as the operator's image lacks some of them.
LIBRARIES: Final = frozenset(
    {
        *("adbc_driver_duckdb", "aiolimiter", "annotated_types", "anyio", "cachetools", "cel_expr_python", "certifi"),
        *("charset_normalizer", "click", "confluent_kafka", "dateutil", "duckdb", "fastavro", "fb303"),
        *("fsspec", "google", "hive_metastore", "idna", "lance"),
        *("lance_namespace", "lance_namespace_urllib3_client", "markdown_it", "mdurl", "mmh3", "numpy", "obstore", "pandas"),
        *("py4j", "pyarrow", "pydantic", "pydantic_core", "pygments", "pyiceberg", "pyiceberg_core", "pyparsing", "pyroaring"),
        *("pyspark", "pytz", "requests", "rich", "six", "strictyaml", "tenacity", "typing_extensions", "typing_inspection"),
        *("tzdata", "urllib3", "zstandard"),
    }
)
_SUFFIXES: Final = (".py", ".pyc", ".so")
_MOST_NAMED: Final = 5


def hiding(files: Iterable[PurePosixPath]) -> list[tuple[PurePosixPath, str]]:
    """Return those of the files, relative to the import path, that hide a module of the driver, and which one; sorted.

    A folder without `__init__` hides nothing: Python prefers a module that comes later.
    """
    return sorted({(file, name) for file in files if (name := _top_level_module(file)) and _is_needed(name)})


def refuse_hiding(files: Iterable[PurePosixPath], where: str) -> None:
    """Raise NeedsChange if a file hides a module of the driver; `where` is the field and the place that has the files."""
    if found := hiding(files):
        named = "; ".join(f"{file} hides {_described(name)}" for file, name in found[:_MOST_NAMED])
        more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"{where} has modules that the driver would import instead of those it needs: {named}{more}; rename them, or leave "
            "out what is installed already",
        )


def modules_in(folder: Path) -> Iterator[PurePosixPath]:
    """Give the files of a folder that are modules at its top, or make a folder there a package; none if there is no folder."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from (PurePosixPath(entry.name, file.name) for file in entry.glob("__init__.*"))
        else:
            yield PurePosixPath(entry.name)


def _top_level_module(file: PurePosixPath) -> str | None:
    """Return the name that a file makes importable, None for none. Compiled modules have a tag: queue.cpython-312.so."""
    if not file.name.endswith(_SUFFIXES):
        return None
    stem = file.name.partition(".")[0]
    match file.parts:
        case [_]:
            return stem
        case [package, _] if stem == "__init__":
            return package
        case _:
            return None


def _is_needed(name: str) -> bool:
    return name in sys.stdlib_module_names or name in OWN or name in LIBRARIES


def _described(name: str) -> str:
    if name in sys.stdlib_module_names:
        return f"{name!r} of Python's standard library"
    return f"{name!r} of Checkpointed Writes" if name in OWN else f"the installed package {name!r}"
