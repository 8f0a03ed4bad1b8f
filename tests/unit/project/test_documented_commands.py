"""What the documents tell people to type is taken by the commands, and `validate` finds nothing wrong with their manifests."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pyarrow.csv as pc
import pytest
import yaml
from click.testing import CliRunner

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_local.cli.files import find_settings, load_settings
from checkpoint_local.cli.main import main as command_line
from examples.prepare_data import packaged
from tests.unit.project.test_documentation import DOCUMENTS, ROOT, blocks

_PROGRAM: Final = "checkpointed-write"
_EXAMPLES: Final = ROOT / "examples"
_SAMPLE_BYTES: Final = 100_000


def typed() -> Iterator[tuple[str, list[str]]]:
    """Give each call of the program, in consoles and within sentences, with the words behind its name."""
    for where, text in blocks("console"):
        for line in re.findall(rf"^\$ (?:\.venv/bin/)?{_PROGRAM} (.*)$", text, re.MULTILINE):
            yield where, shlex.split(line, comments=True)
    for document in DOCUMENTS:
        for line in re.findall(rf"`(?:\.venv/bin/)?{_PROGRAM} ([^`\n]+)`", document.read_text()):
            yield str(document.relative_to(ROOT)), shlex.split(line)


@pytest.mark.parametrize("words", [pytest.param(words, id=f"{where}: {' '.join(words)}") for where, words in typed()])
def test_a_command_line_of_the_documents_is_taken_with_its_options(words: list[str]) -> None:
    name, *given = words
    assert isinstance(command_line, click.Group)
    command = command_line.commands[name]

    # Within a sentence, a name may stand for the command.
    if given:
        command.make_context(name, given)


@pytest.mark.parametrize("name", sorted(command_line.commands))
def test_a_command_explains_itself(name: str) -> None:
    answer = CliRunner().invoke(command_line, [name, "--help"])

    assert answer.exit_code == 0
    assert answer.output.startswith(f"Usage: main {name}")


def of_writes() -> Iterator[tuple[str, str]]:
    """Give the manifests for one machine. Those for brokers and buckets are parsed, with all other YAML of the documents."""
    for where, text in blocks("yaml"):
        if "kind: CheckpointedWrite" in text and len(list(yaml.safe_load_all(text))) == 1:
            spec = yaml.safe_load(text)["spec"]
            is_of_files = "files" in spec.get("source", {}) and "://" not in str(spec)
            if is_of_files and spec["sink"].get("iceberg", {}).get("catalog") == "local":
                yield where, text


def test_the_documents_show_manifests_for_one_machine() -> None:
    assert len(list(of_writes())) >= 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the documents' relative paths lead somewhere: code, settings and a catalog as the examples have them."""
    shutil.copytree(_EXAMPLES / "code", tmp_path / "code")
    shutil.copy(_EXAMPLES / "checkpointed-write.settings.yaml", tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "output").mkdir()
    shutil.copy(packaged("airports.csv"), tmp_path / "code")
    return tmp_path


def put_flights(path: Path) -> None:
    with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
        beginning = packed.read(_SAMPLE_BYTES)
    path.write_bytes(beginning[: beginning.rindex(b"\n") + 1])


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in of_writes()])
def test_a_manifest_of_the_documents_has_no_problem(text: str, folder: Path) -> None:
    (folder / "write.yaml").write_text(text)
    spec = yaml.safe_load(text)["spec"]
    files = [folder / path for path in spec["source"]["files"]["paths"]]
    for path in files:
        put_flights(path)
    sink = spec["sink"]
    if not sink.get("create"):
        catalog = open_catalog(sink["iceberg"]["catalog"], load_settings(find_settings(None, folder / "write.yaml")))
        catalog.create_namespace(sink["iceberg"]["table"].partition(".")[0])
        catalog.create_table(sink["iceberg"]["table"], pc.read_csv(files[0]).schema)

    answer = CliRunner().invoke(command_line, ["validate", str(folder / "write.yaml")], catch_exceptions=False)

    assert answer.exit_code == 0, answer.output


_BLOCKS: Final = "tests/end_to_end/test_documented_blocks.py"
_PAGE: Final = "tests/end_to_end/test_your_own_files.py"
_RELEASE: Final = "tests/contract/test_release.py"
_QUICK_START: Final = "tests/end_to_end/test_quick_start.py"
_CLUSTER: Final = "tests/cluster/test_documented_blocks.py"
_UNINSTALLATION: Final = "tests/cluster/test_documented_uninstallation.py"
_CHART: Final = "charts/checkpointed-write-operator/README.md"
_TROUBLE: Final = "docs/operations/troubleshooting.md"
_TO_ARGO_CD: Final = 'kubectl patch configmap argocd-cm --namespace argocd --type merge --patch "$(jq -n --rawfile lua \\'
_CRDS: Final = "kubectl apply --server-side --force-conflicts -f charts/checkpointed-write-operator/crds/"
#: Who runs each block of commands, by its document and its first command.
RUN_BY: Final = {
    ("benchmarks/README.md", "make bench"): _BLOCKS,
    ("docs/guides/images.md", "make run-images"): _BLOCKS,
    ("docs/guides/services.md", ".venv/bin/python examples/prepare_data.py"): _BLOCKS,
    ("docs/guides/services.md", ".venv/bin/checkpointed-write preview examples/answers-iceberg.yaml --rows 2"): _BLOCKS,
    ("docs/guides/settings.md", "checkpointed-write allow checkpointed-write.settings.yaml"): _BLOCKS,
    ("docs/guides/upsert.md", ".venv/bin/python examples/prepare_data.py"): _BLOCKS,
    ("docs/guides/upsert.md", ".venv/bin/checkpointed-write run examples/airports-upsert.yaml"): _BLOCKS,
    ("docs/guides/python.md", "python make_input.py"): _PAGE,
    ("docs/guides/your-own-files.md", "python make_input.py"): _PAGE,
    ("docs/guides/your-own-files.md", "checkpointed-write validate write.yaml"): _PAGE,
    ("docs/guides/your-own-files.md", "checkpointed-write plan write.yaml"): _PAGE,
    ("docs/guides/your-own-files.md", "checkpointed-write failed write.yaml --columns id"): _PAGE,
    ("docs/guides/your-own-files.md", "python add_input.py"): _PAGE,
    ("docs/guides/your-own-files.md", "python search.py"): _PAGE,
    ("docs/operations/clean-up.md", "checkpointed-write clean s3://bucket/checkpoints --older-than 7d --dry-run"): _BLOCKS,
    ("docs/operations/install.md", "make setup"): _BLOCKS,
    ("docs/operations/troubleshooting.md", ".venv/bin/checkpointed-write status examples/flights-iceberg.yaml"): _BLOCKS,
    ("docs/operations/uninstall.md", ".venv/bin/checkpointed-write forget examples/flights-iceberg.yaml"): _BLOCKS,
    ("docs/operations/upgrade.md", "make setup"): _BLOCKS,
    (
        "docs/operations/verify-a-release.md",
        (
            "ssh-keygen -Y verify -f ../allowed_signers -I checkpointed-writes -n checkpointed-writes-release"
            " -s SHA256SUMS.sig < SHA256SUMS"
        ),
    ): _RELEASE,
    ("docs/operations/verify-a-release.md", "ssh-keygen -t ed25519 -C checkpointed-writes-release -f ../release_key"): _RELEASE,
    ("docs/quick-start.md", "make run"): _BLOCKS,
    ("docs/quick-start.md", ".venv/bin/checkpointed-write run examples/flights-lance.yaml"): _BLOCKS,
    ("docs/quick-start.md", "kill -9 $(pgrep -f checkpoint_spark.driver.main)"): _QUICK_START,
    ("docs/quick-start.md", ".venv/bin/checkpointed-write forget examples/flights-lance.yaml"): _BLOCKS,
    ("docs/quick-start.md", ".venv/bin/checkpointed-write status examples/flights-iceberg.yaml"): _BLOCKS,
    (_CHART, "helm install checkpointed-writes charts/checkpointed-write-operator \\"): _UNINSTALLATION,
    (_CHART, _CRDS): _CLUSTER,
    (_CHART, _TO_ARGO_CD): _CLUSTER,
    (_CHART, "kubectl create serviceaccount checkpointed-write-driver --namespace team-a"): _CLUSTER,
    (_CHART, "kubectl apply -f - <<EOF"): _CLUSTER,
    (_CHART, "kubectl delete namespace checkpointed-writes"): _UNINSTALLATION,
    (
        "docs/guides/cluster.md",
        "docker build -f operator/Dockerfile -t registry.example.com/checkpointed-writes/operator:0.1.0 .",
    ): _CLUSTER,
    (
        "docs/guides/changes.md",
        (
            "kubectl annotate checkpointedwrite flights -n checkpointed-writes"
            " checkpointed.dev/approve=Continue-3f9c0a1d5be27744 --overwrite"
        ),
    ): _CLUSTER,
    ("docs/guides/code.md", ".venv/bin/python examples/prepare_data.py"): _CLUSTER,
    ("docs/guides/gitops.md", _TO_ARGO_CD): _CLUSTER,
    (
        "docs/guides/triggers.md",
        (
            "kubectl get checkpointedwrite clicks -n checkpointed-writes"
            " -o jsonpath='{.status.conditions[?(@.type==\"UpToDate\")]}'"
        ),
    ): _CLUSTER,
    (
        "docs/operations/install.md",
        (
            "helm install operator charts/checkpointed-write-operator -n checkpointed-operator --create-namespace"
            " -f my-values.yaml"
        ),
    ): _CLUSTER,
    (_TROUBLE, "kubectl get checkpointedwrites -n checkpointed-writes -o wide"): _CLUSTER,
    (
        _TROUBLE,
        "kubectl annotate checkpointedwrite flights-iceberg -n checkpointed-writes checkpointed.dev/retry=1 --overwrite",
    ): _CLUSTER,
    (
        _TROUBLE,
        "kubectl annotate checkpointedwrite flights-iceberg -n checkpointed-writes checkpointed.dev/abandon=true",
    ): _CLUSTER,
    ("docs/operations/uninstall.md", "kubectl delete checkpointedwrites --all --all-namespaces"): _UNINSTALLATION,
    ("docs/operations/uninstall.md", "helm uninstall operator -n checkpointed-operator --no-hooks"): _UNINSTALLATION,
    ("docs/operations/upgrade.md", _CRDS): _CLUSTER,
    (
        "docs/operations/upgrade.md",
        "helm upgrade operator charts/checkpointed-write-operator -n checkpointed-operator -f my-values.yaml",
    ): _CLUSTER,
}
#: Blocks that no test runs as they stand, and why. Their words are checked above, and in test_documentation.py.
NOT_RUN: Final = {
    ("README.md", 'pip install ".[local]"'): "installs, and runs all tests",
    ("docs/operations/verify-a-release.md", "make audit"): "asks sources outside; tests/unit/project/test_audit.py reads answers",
    (
        "docs/operations/verify-a-release.md",
        (
            "skopeo copy --preserve-digests oci-archive:checkpointed-writes-operator-0.1.0.oci.tar"
            " docker://registry.example.com/checkpointed-writes/operator:0.1.0"
        ),
    ): "takes a registry",
    (
        "docs/operations/install.md",
        "docker build -f operator/Dockerfile -t registry.example.com/checkpointed-writes/operator:0.1.0 .",
    ): "takes a registry; the images of tests/cluster are built from the same Dockerfiles",
}


def first_commands() -> Iterator[tuple[str, str]]:
    """Give each block of commands by its document and its first command, without a comment behind it."""
    for document in [*DOCUMENTS, ROOT / "benchmarks" / "README.md"]:
        for text in re.findall(r"```(?:console|sh)\n(.*?)```", document.read_text(), re.DOTALL):
            yield str(document.relative_to(ROOT)), re.sub(r"\s+#.*", "", text.splitlines()[0]).strip().removeprefix("$ ")


def test_each_block_of_commands_is_run_by_a_test_or_it_is_said_why_not() -> None:
    shown = set(first_commands())

    assert shown - RUN_BY.keys() - NOT_RUN.keys() == set(), "let a test run it, and name the test in RUN_BY"
    assert (RUN_BY.keys() | NOT_RUN.keys()) - shown == set(), "no document shows it any more"
    assert not RUN_BY.keys() & NOT_RUN.keys()


@pytest.mark.parametrize(("document", "command"), RUN_BY, ids=lambda value: value)
def test_the_test_that_runs_a_block_names_its_document_and_the_beginning_of_its_command(document: str, command: str) -> None:
    tree = ast.parse((ROOT / RUN_BY[document, command]).read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]

    assert any(text in (document, Path(document).name) for text in texts)
    # The page is followed as a whole.
    assert RUN_BY[document, command] == _PAGE or any(" " in text and f"{command} ".startswith(f"{text} ") for text in texts)
