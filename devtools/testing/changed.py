"""Which test files a change can break: `python -m devtools.testing.changed COMMIT` prints them, a line each.

A test file is among them if it was changed, or if what it imports leads to a module that was. Of the slow folders, whose tests
start Spark or Kubernetes and reach nearly everything, those of `BY_HAND` are taken: what `make test` finds, this may not.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Final

import grimp

ROOTS: Final = {
    "core": ("checkpoint_protocol", "checkpoint_formats", "checkpoint_work", "checkpoint_commit", "checkpoint_control"),
    "operator": ("checkpoint_operator",),
    "spark_app": ("checkpoint_spark",),
    "local": ("checkpoint_local", "checkpointed_writes"),
}
PACKAGES: Final = (*itertools.chain(*ROOTS.values()), "devtools", "benchmarks", "tests")
#: Folders of which only files that were changed themselves, and those of BY_HAND, are run.
SLOW_FOLDERS: Final = ("tests.end_to_end", "tests.contract.kubernetes", "tests.cluster")
#: Processes are started by name, which no import shows: modules (and all below), and what is run for them.
BY_HAND: Final[dict[str, tuple[str, ...]]] = {
    "checkpoint_protocol": ("tests/end_to_end/test_files.py",),
    "checkpoint_formats.iceberg": ("tests/end_to_end/test_files.py",),
    "checkpoint_formats.lance": ("tests/end_to_end/test_files.py",),
    "checkpoint_formats.files": ("tests/end_to_end/test_files.py", "tests/end_to_end/test_text_input.py"),
    "checkpoint_formats.kafka": ("tests/end_to_end/test_kafka.py", "tests/end_to_end/test_kafka_avro.py"),
    "checkpoint_formats.merging": ("tests/end_to_end/test_upserts.py",),
    "checkpoint_local.cli": ("tests/end_to_end/test_commands.py",),
    "checkpoint_local": ("tests/end_to_end/test_crashes_of_the_runner.py",),
    "checkpoint_control.pipelines": ("tests/end_to_end/test_pipelines.py",),
    "checkpoint_operator.crd": ("tests/contract/kubernetes/test_crd_on_a_real_api_server.py",),
    "checkpoint_operator": ("tests/contract/kubernetes/test_kube_api.py",),
    "checkpoint_spark": ("tests/end_to_end/test_files.py",),
    "checkpoint_work.steps": ("tests/end_to_end/test_steps.py",),
    "checkpoint_spark.dataframes": ("tests/end_to_end/test_keys.py",),
}
#: What is no module, and the tests that read it.
OF_FILES: Final[dict[str, tuple[str, ...]]] = {
    "crds/": ("tests/unit/cluster/test_crd.py", "tests/contract/kubernetes/test_crd_on_a_real_api_server.py"),
    "charts/": ("tests/contract/kubernetes/test_chart.py",),
    "docs/": ("tests/unit/project",),
    "README.md": ("tests/unit/project",),
    "Makefile": ("tests/unit/project",),
    "pyproject.toml": ("tests/unit/project",),
    "examples/": ("tests/unit/project",),
    "tests/golden/": ("tests/unit/protocol/test_records.py",),
}


def reached_by(changed: Iterable[str], graph: grimp.ImportGraph) -> set[str]:
    """Return paths of test files and folders for paths that were changed, all from the root of the repository."""
    tests: set[str] = set()
    for path in changed:
        tests.update(test for prefix, found in OF_FILES.items() if path.startswith(prefix) for test in found)
        module = module_of(path)
        if module is None:
            continue
        tests.update(test for name, found in BY_HAND.items() if _is_in(module, name) for test in found)
        tests.update(_path_of(test) for test in _that_reach(module, graph))
    return tests


def module_of(path: str) -> str | None:
    """Return the module in a file; None if it has none."""
    first, _, rest = path.partition("/")
    if not path.endswith(".py") or not rest:
        return None
    inside = rest if first in ROOTS else path
    name = inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.split(".")[0] in PACKAGES else None


def _that_reach(module: str, graph: grimp.ImportGraph) -> Iterator[str]:
    if _is_test(module):
        yield module
    if module.endswith(".conftest"):
        yield from (test for test in graph.modules if _is_test(test) and _is_in(test, module.removesuffix(".conftest")))
    if module not in graph.modules:
        return
    for test in graph.find_downstream_modules(module):
        if _is_test(test) and not any(_is_in(test, folder) for folder in SLOW_FOLDERS):
            yield test


def _is_test(module: str) -> bool:
    return _is_in(module, "tests") and module.rpartition(".")[2].startswith("test_")


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _path_of(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def changed_since(commit: str) -> Set[str]:
    """Return the paths that differ from a commit, with those that git does not know yet."""
    differ = _git("diff", "--name-only", commit)
    return {*differ, *_git("ls-files", "--others", "--exclude-standard")}


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def main(commit: str) -> None:
    sys.path[:0] = [*ROOTS, "."]
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    there = {test for test in reached_by(changed_since(commit), graph) if Path(test).exists()}
    sys.stdout.writelines(f"{test}\n" for test in sorted(there))


if __name__ == "__main__":
    main(sys.argv[1])
