"""The command `checkpointed-write`: says what to install where that is missing, instead of a traceback."""

from __future__ import annotations

import importlib.util
import sys
from typing import Final

#: What the extra `local` installs, as it is imported. pyproject.toml has the packages.
_LOCAL: Final = (
    "click",
    "rich",
    "yaml",
    "psutil",
    "pathspec",
    "jinja2",
    "pyarrow",
    "pyiceberg",
    "lance",
    "pyspark",
    "pandas",
    "duckdb",
)


def why_not_local() -> str | None:
    """Return why writes cannot be run in this environment, with the way out; None if they can."""
    missing = [name for name in _LOCAL if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    are = "is" if len(missing) == 1 else "are"
    return (
        f"writes are run with what the extra `local` installs, and {', '.join(missing)} {are} not there; run in a "
        "clone of the repository: pip install '.[local]'"
    )


def main() -> None:
    """Run the command line. Exit code 2 where something is not installed."""
    if (why := why_not_local()) is not None:
        sys.stderr.write(f"error: {why}\n")
        sys.exit(2)
    from checkpoint_local.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
