"""Installed without the extra `local`: what is missing, and the way out, in one line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from checkpoint_local.cli.entry import _LOCAL

ROOT = Path(__file__).parents[3]
#: Packages are hidden as if they were not installed: neither importlib nor an import finds them.
HIDING = """
import sys
hidden = set(sys.argv.pop(1).split(","))

class Hides:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Hides(finder) for finder in sys.meta_path]
"""
#: All that `pip install .` does not install, of what the product imports.
EXTRAS = ",".join(
    (*_LOCAL, "numpy", "cronsim", "anyio", "aiolimiter", "tenacity", "confluent_kafka", "py4j", "kopf", "kubernetes")
)


def run_without(hidden: str, body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDING + body, hidden, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("hidden", "told"),
    [
        ("click", "and click is not there; run in a clone of the repository: pip install '.[local]'"),
        (
            "click,rich,pyspark",
            "and click, rich, pyspark are not there; run in a clone of the repository: pip install '.[local]'",
        ),
        (EXTRAS, f"and {', '.join(_LOCAL)} are not there; run in a clone of the repository: pip install '.[local]'"),
    ],
)
def test_the_command_names_what_to_install(hidden: str, told: str) -> None:
    run = run_without(hidden, "from checkpoint_local.cli.entry import main\nmain()", "run", "write.yaml")

    assert run.returncode == 2
    assert told in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("hidden", "told"), [("psutil", "and psutil is not there"), (EXTRAS, f"and {', '.join(_LOCAL)} are not there")]
)
@pytest.mark.parametrize("function", ["run", "preview"])
def test_so_does_the_package(function: str, hidden: str, told: str) -> None:
    body = f"from checkpointed_writes import {function} as call\ntry: call({{}})\nexcept ImportError as error: print(error)"
    run = run_without(hidden, body)

    assert run.returncode == 0, run.stderr
    assert f"{told}; run in a clone of the repository: pip install '.[local]'" in run.stdout
    assert run.stdout.count("\n") == 1


@pytest.mark.parametrize("call", ["apply", "wait"])
def test_what_talks_to_a_cluster_names_what_to_install(call: str) -> None:
    made = "cw.read_parquet('in').write_lance('v.lance')"
    body = f"import checkpointed_writes as cw\ntry: {made}.{call}()\nexcept ImportError as error: print(error)"
    run = run_without("kubernetes", body)

    assert "run: pip install '.[local,cluster]'" in run.stdout, run.stderr


def test_with_all_of_it_the_command_is_itself() -> None:
    run = run_without("nothing", "from checkpoint_local.cli.entry import main\nmain()", "--version")

    assert run.returncode == 0, run.stderr


def test_all_that_is_looked_for_is_installed_by_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = " ".join(extra for kind in ("local", "operator", "spark") for extra in extras[kind]).lower().replace("_", "-")

    missing = [name for name in _LOCAL if not any(one.lower() in named for one in packages_distributions()[name])]
    assert missing == []
