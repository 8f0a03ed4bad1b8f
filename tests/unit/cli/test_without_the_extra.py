"""Installed without the extra `local`: what is missing, and the way out, in one line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from checkpoint_operator.cli.entry import _LOCAL

ROOT = Path(__file__).parents[3]
HIDING = """
import sys
hidden = set(sys.argv.pop(1).split(","))

class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hides())
real = __import__("importlib.util").util.find_spec
__import__("importlib.util").util.find_spec = lambda name, package=None: None if name in hidden else real(name, package)
"""


def run_without(hidden: str, body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDING + body, hidden, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("hidden", "told"),
    [
        ("click", "and click is not there; run: pip install 'checkpointed-writes[local]'"),
        ("click,rich,pyspark", "and click, rich, pyspark are not there; run: pip install 'checkpointed-writes[local]'"),
    ],
)
def test_the_command_names_what_to_install(hidden: str, told: str) -> None:
    run = run_without(hidden, "from checkpoint_operator.cli.entry import main\nmain()", "run", "write.yaml")

    assert run.returncode == 2
    assert told in run.stderr
    assert run.stderr.count("\n") == 1


def test_so_does_the_package() -> None:
    body = "import checkpointed_writes\ntry: checkpointed_writes.run({})\nexcept ImportError as error: print(error)"
    run = run_without("psutil", body)

    assert run.returncode == 0, run.stderr
    assert "and psutil is not there; run: pip install" in run.stdout


def test_with_all_of_it_the_command_is_itself() -> None:
    run = run_without("nothing", "from checkpoint_operator.cli.entry import main\nmain()", "--version")

    assert run.returncode == 0, run.stderr


def test_all_that_is_looked_for_is_installed_by_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = " ".join(extra for kind in ("local", "operator", "spark") for extra in extras[kind]).lower().replace("_", "-")

    missing = [name for name in _LOCAL if not any(one.lower() in named for one in packages_distributions()[name])]
    assert missing == []
