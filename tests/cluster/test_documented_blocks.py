"""Command blocks of the documents for clusters, typed where they belong, with what the pages say they do.

tests/unit/project/test_documented_commands.py lists who runs each block.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.cluster.installation import RELEASE, ROOT, Installation
from tests.cluster.lake import SCHEMA
from tests.cluster.pages import PAGES_NAMESPACE, Reader, block, commands
from tests.cluster.test_examples import FLIGHTS, applied, lay_out_the_data, put
from tests.cluster.user import User
from tests.support import needs
from tests.support.waiting import patience

pytestmark = pytest.mark.slow

INSTALL: Final = "docs/operations/install.md"
UPGRADE: Final = "docs/operations/upgrade.md"
TROUBLE: Final = "docs/operations/troubleshooting.md"
CHART: Final = "charts/checkpointed-write-operator/README.md"
#: The second half waits at a barrier.
ROWS, FIRST = 200, 100
KIND: Final = "checkpointedwrites.checkpointed.dev"


@pytest.fixture(scope="module")
def shell(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(installation, tmp_path_factory.mktemp("reader"))
    yield reader
    reader.leave()


@pytest.fixture
def reader(shell: Reader) -> Iterator[Reader]:
    """Somebody who has installed the operator as the page says."""
    shell.install()
    yield shell
    shell.clear()


def begin(user: User, **spec: Any) -> None:
    """Apply a write that waits in its middle, and wait until rows of it are sealed."""
    user.make_place("iceberg")
    user.apply(user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), FIRST, **spec))
    user.wait_until_sealed(FIRST // 2)


def end(user: User) -> None:
    user.open_barrier()
    user.wait_for("Committed")
    assert user.ids() == list(range(ROWS))


def test_the_guide_leads_from_the_installation_to_a_committed_example(shell: Reader) -> None:
    shell.uninstall_what_is_there()
    printed = shell.install()
    assert "ready: the API server answers" in printed
    assert "ready: catalog lakehouse answers" in printed
    assert re.search(r"ready: storage s3://\S+ answers", printed)
    assert printed.endswith("No resources found\n")

    user = shell.user("flights-iceberg")
    user.make_place("iceberg", with_table=False)
    example = shell.folder / "examples" / "cluster" / "flights-iceberg.yaml"
    guide = commands("docs/guides/cluster.md", "docker build")
    assert commands("docs/guides/code.md", ".venv/bin/python examples/prepare_data.py")[1] in guide
    for line in guide:
        match shlex.split(line):
            case ["docker", *_] | ["make", "setup"]:
                pass  # the images are made, and the nodes know them
            case ["helm", "install", *_]:
                assert line in commands(INSTALL, "helm install")
            case [".venv/bin/python", "examples/prepare_data.py"]:
                lay_out_the_data(shell.folder)
                example.parent.mkdir()
                fitting = applied(user, ROOT / "examples" / "cluster" / "flights-iceberg.yaml")
                fitting["spec"]["code"]["configMap"]["name"] = "flights-code"
                example.write_text(yaml.safe_dump(fitting))
            case ["aws", "s3", "cp", path, uri]:
                put(user, shell.folder / path, uri)
            case [*_, "--watch"]:
                watch = shell.start(line)
            case _:
                shell.run(line)
    watch.terminate()
    watched, _ = watch.communicate(timeout=patience(30))

    assert user.place is not None
    assert len(user.place.rows()) == FLIGHTS
    assert re.search(r"^NAME +PHASE +PROGRESS +ROWS", watched)
    assert re.search(r"^flights-iceberg +Committed ", watched, re.MULTILINE)
    assert {event["reason"] for event in user.events()} >= {"Started", "Sealed", "Committed"}
    assert user.condition("Ready")["status"] == "True"
    shell.clear()


def test_a_write_that_waits_for_its_table_is_looked_at_and_tried_again_in_the_words_of_the_page(reader: Reader) -> None:
    user = reader.user("flights-iceberg")
    place = user.make_place("iceberg", with_table=False)
    user.apply(user.write(user.put_rows("a.parquet", 0, 20)))
    user.until(lambda: user.condition("Stalled").get("status") == "True", what="the write is stalled")

    table, description = (reader.run(line) for line in commands(TROUBLE, "kubectl get checkpointedwrites"))
    titles, row = table.splitlines()
    assert titles.split()[-1] == "REASON"
    assert row.split()[-1] == user.status()["reason"] == "TableMissing"
    assert user.status()["message"].split("\n")[0][:60] in description
    assert "checkpointed-write explain TableMissing" in description
    user.until(lambda: bool(user.warnings()), what="a warning event")

    place.create(SCHEMA)
    reader.follow(TROUBLE, "kubectl annotate checkpointedwrite flights-iceberg -n checkpointed-writes checkpointed.dev/retry=1")
    user.wait_for("Committed")
    assert user.ids() == list(range(20))


def test_an_edit_that_waits_for_a_person_is_approved_by_the_command_of_its_message(reader: Reader) -> None:
    user = reader.user("flights")
    begin(user, onCodeChange="Ask")
    arguments = {"seconds": 0.001}
    user.edit(steps=[{**step, "arguments": arguments} for step in user.manifest["spec"]["steps"]])
    user.kubectl("delete", "pod", "-n", user.namespace, user.running_driver(), "--wait=false")
    user.until(lambda: user.status().get("reason") == "CodeChanged", 100, "the edit waits")

    (line,) = commands("docs/guides/changes.md", "kubectl annotate checkpointedwrite flights")
    message = user.status()["message"]
    (value,) = set(re.findall(r"Continue-[0-9a-f]+", message))
    command = re.sub(r"Continue-[0-9a-f]+", value, line)
    assert command in message
    reader.run(command)

    end(user)


def test_a_deletion_that_a_store_holds_up_is_abandoned_in_the_words_of_the_page(reader: Reader) -> None:
    user = reader.user("flights-iceberg")
    begin(user)
    reader.installation.lake.s3.stop()
    try:
        user.kubectl("delete", "cw", user.name, "-n", user.namespace, "--wait=false")
        user.until(lambda: user.status().get("phase") == "Deleting", 120, "the deletion is held up")

        reader.follow(
            TROUBLE, "kubectl annotate checkpointedwrite flights-iceberg -n checkpointed-writes checkpointed.dev/abandon=true"
        )
        reader.until_gone(f"cw -n {PAGES_NAMESPACE}")
    finally:
        reader.installation.lake.s3.start()


def test_files_that_wait_for_more_are_told_by_the_condition_that_the_page_shows(reader: Reader) -> None:
    user = reader.user("clicks")
    user.make_place("iceberg")
    source = user.put_rows("a.parquet", 0, 10)
    user.apply(user.write(source, trigger={"every": "10s", "atLeast": {"files": 10, "orAfter": "1h"}}))
    user.wait_for("Committed")
    for number in range(1, 4):
        user.put_rows(f"{number}.parquet", 10 * number, 10)
    user.until(lambda: user.condition("UpToDate").get("status") == "False", what="a look finds the files")

    page, beginning = "docs/guides/triggers.md", "kubectl get checkpointedwrite clicks"
    printed = json.loads(reader.follow(page, beginning))
    shown = json.loads(block(page, beginning).splitlines()[-1])
    assert list(shown) == list(printed)
    message = re.compile(r"3 new files, \S+ since \S+Z; trigger\.atLeast waits for more")
    for condition in (shown, printed):
        assert (condition["type"], condition["status"], condition["reason"]) == ("UpToDate", "False", "Behind")
        assert message.fullmatch(condition["message"]), condition["message"]


def test_an_upgrade_in_the_middle_of_a_write_leaves_its_driver_at_work(reader: Reader) -> None:
    user = reader.user("flights-iceberg")
    begin(user)
    driver, operators = user.running_driver(), reader.installation.operator_pods()
    crds = "kubectl apply --server-side --force-conflicts -f charts/checkpointed-write-operator/crds/"
    assert commands(CHART, crds) == commands(UPGRADE, crds)
    reader.put_values(PAGES_NAMESPACE, resyncSeconds=50)

    assert reader.follow(UPGRADE, crds) == f"customresourcedefinition.apiextensions.k8s.io/{KIND} serverside-applied\n"
    upgraded = reader.follow(UPGRADE, "helm upgrade operator")

    assert "ready: the API server answers" in upgraded
    reader.installation.wait_ready()
    user.until(lambda: reader.installation.operator_pods() not in ([], operators), what="another operator")
    assert user.running_driver() == driver
    end(user)
    assert user.status()["attempt"] == 1


def test_a_namespace_that_the_chart_does_not_prepare_is_prepared_and_one_of_its_people_may_use_the_catalog(
    reader: Reader,
) -> None:
    watch = {"namespaces": [PAGES_NAMESPACE], "allNamespaces": True}
    reader.put_values(PAGES_NAMESPACE, watch=watch, admissionPolicy={"catalogs": True})
    upgrade, *_ = commands(UPGRADE, "helm upgrade operator")
    reader.run(upgrade)
    reader.installation.wait_ready()
    reader.run("kubectl create namespace team-a")
    (shown,) = re.findall(r"```json\n(.*?)```", (ROOT / CHART).read_text(), re.DOTALL)
    storage = {**json.loads(shown)["storage"][0], "prefix": "s3://"}
    theirs = reader.installation.values()["workloads"]["storage"][0]
    del storage["credentials"], theirs["namespaces"], theirs["overwrites"]
    (reader.folder / "storage.json").write_text(json.dumps({"storage": [storage | theirs]}))
    try:
        for line in commands(CHART, "kubectl create serviceaccount checkpointed-write-driver --namespace team-a"):
            reader.run(line.replace("RELEASE", RELEASE))
        user = reader.user("flights", "team-a")
        user.make_place("iceberg")
        manifest = user.write(user.put_rows("a.parquet", 0, 20))
        (reader.folder / "flights.yaml").write_text(yaml.safe_dump(manifest))
        reader.run("kubectl create rolebinding ann-edits --namespace team-a --clusterrole edit --user ann")
        apply = "kubectl apply --namespace team-a --filename flights.yaml --as ann"

        code, refused = reader.ended(apply)
        assert code != 0
        assert "you may not use the catalog lakehouse in this namespace (spec.sink)" in refused

        reader.follow(CHART, "kubectl apply -f - <<EOF")
        reader.run("kubectl create rolebinding ann-uses --namespace team-a --role lakehouse-users --user ann")
        reader.run(apply)
        user.wait_for("Committed")
        assert user.ids() == list(range(20))
    finally:
        reader.clear()
        reader.put_values(PAGES_NAMESPACE)
        reader.run(upgrade)
        reader.run("kubectl delete namespace team-a --wait=false")


def test_argo_cd_is_told_how_healthy_writes_are_by_the_command_of_both_pages(reader: Reader) -> None:
    if shutil.which("jq") is None:
        needs.skip("a command of the pages takes jq")
    patch = "kubectl patch configmap argocd-cm --namespace argocd"
    (line,) = commands("docs/guides/gitops.md", patch)
    assert commands(CHART, patch) == [line]
    reader.run("kubectl create namespace argocd")
    reader.run("kubectl create configmap argocd-cm --namespace argocd --from-literal=theirs=stays")

    reader.run(line)

    found = json.loads(reader.run("kubectl get configmap argocd-cm --namespace argocd -o json"))["data"]
    lua = (ROOT / "charts" / "checkpointed-write-operator" / "docs" / "argocd-health.lua").read_text()
    assert found == {"theirs": "stays", "resource.customizations.health.checkpointed.dev_CheckpointedWrite": lua}
    reader.run("kubectl delete namespace argocd --wait=false")
