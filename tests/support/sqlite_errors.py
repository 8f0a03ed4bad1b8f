"""Errors of SQLite as a catalog meets them, from SQLite itself."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

SqliteProblem = Literal["full", "read-only", "without a folder"]


def sqlite_error(folder: Path, problem: SqliteProblem) -> OperationalError:
    """Make a table in a file of a folder, and return what is raised when that cannot be."""
    file = folder / "catalog.db"
    match problem:
        case "full":
            uri, first = f"sqlite:///{file}", "PRAGMA max_page_count = 1"
        case "read-only":
            file.touch()
            uri, first = f"sqlite:///file:{file}?mode=ro&uri=true", "SELECT 1"
        case "without a folder":
            uri, first = f"sqlite:///{folder}/nowhere/catalog.db", "SELECT 1"
    with pytest.raises(OperationalError) as caught:
        _make_table(uri, first)
    return caught.value


def _make_table(uri: str, first: str) -> None:
    with create_engine(uri, poolclass=NullPool).begin() as connection:
        connection.execute(text(first))
        connection.execute(text("CREATE TABLE t (a BLOB)"))
