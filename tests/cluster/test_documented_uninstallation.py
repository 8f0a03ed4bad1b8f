"""The operator is uninstalled and installed again as the documents say, also after the namespace of its writes was deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.pages import PAGES_NAMESPACE, Reader, commands, said
from tests.cluster.user import User
from tests.support.waiting import until

pytestmark = pytest.mark.slow

INSTALL: Final = "docs/operations/install.md"
UNINSTALL: Final = "docs/operations/uninstall.md"
UPGRADE: Final = "docs/operations/upgrade.md"
CHART: Final = "charts/checkpointed-write-operator/README.md"
#: The second half waits at a barrier.
ROWS, FIRST = 200, 100


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


def begin(user: User) -> None:
    """Apply a write that waits in its middle, and wait until rows of it are sealed."""
    user.make_place("iceberg")
    user.apply(user.write_with_barrier(user.put_rows("a.parquet", 0, ROWS), FIRST))
    user.wait_until_sealed(FIRST // 2)


def commit(user: User) -> None:
    user.make_place("iceberg")
    user.apply(user.write(user.put_rows("a.parquet", 0, ROWS)))
    user.wait_for("Committed")


def test_an_uninstallation_names_the_writes_that_are_there_and_leaves_what_the_page_lists(reader: Reader) -> None:
    done, user = reader.user("done"), reader.user("flights-iceberg")
    commit(done)
    begin(user)
    delete, uninstall = commands(UNINSTALL, "kubectl delete checkpointedwrites --all")

    code, refused = reader.ended(uninstall)

    assert code != 0
    assert f"2 CheckpointedWrites are there ({PAGES_NAMESPACE}/done, {PAGES_NAMESPACE}/flights-iceberg)" in refused
    assert delete in refused
    reader.installation.wait_ready()

    reader.run(delete)
    reader.run(uninstall)

    assert user.ids() == []
    assert done.ids() == list(range(ROWS))
    reader.run(f"kubectl get secret operator-checkpointed-write-operator-record-keys -n {NAMESPACE}")
    reader.run(f"kubectl get serviceaccount,role,rolebinding checkpointed-write-driver -n {PAGES_NAMESPACE}")
    stays = "secret/checkpointed-write-storage networkpolicy/operator-checkpointed-write-operator-pods"
    reader.run(f"kubectl get {stays} -n {PAGES_NAMESPACE}")
    until(lambda: reader.run(f"kubectl get all -n {NAMESPACE}").startswith("No resources found"), "the operator's end", every=0.5)

    install, *_ = commands(INSTALL, "helm install")
    code, refused = reader.ended(install.replace("helm install operator", "helm install another"))
    assert code != 0
    assert f'Namespace "{PAGES_NAMESPACE}"' in refused
    assert "cannot be imported into the current release" in refused
    reader.follow(INSTALL, "helm install")
    reader.installation.wait_ready()
    done.apply(done.manifest)
    done.wait_for("Committed")
    assert done.condition("Accepted")["reason"] == "Attached"
    assert done.driver_names() == []
    assert done.ids() == list(range(ROWS))


@pytest.mark.parametrize("first", ["operator", "namespace"])
def test_after_operator_and_namespace_were_deleted_the_same_values_end_the_namespace_and_an_upgrade_makes_it_again(
    reader: Reader, first: str
) -> None:
    user = reader.user("flights-iceberg")
    begin(user)
    install, *_ = commands(INSTALL, "helm install")
    upgrade, *_ = commands(UPGRADE, "helm upgrade operator")
    (uninstall,) = commands(UNINSTALL, "helm uninstall operator -n checkpointed-operator --no-hooks")
    delete = said(UNINSTALL, f"kubectl delete namespace {PAGES_NAMESPACE}")
    if first == "operator":
        reader.run(uninstall)
        reader.run(f"{delete} --wait=false")
    else:
        # An operator at work would let go of the write at once.
        reader.installation.stop_operator()
        reader.run(f"{delete} --wait=false")
        reader.run(uninstall)
    conditions = "-o jsonpath='{.status.conditions[?(@.type==\"NamespaceFinalizersRemaining\")].message}'"
    waits = f"kubectl get namespace {PAGES_NAMESPACE} {conditions}"
    until(lambda: "checkpointed.dev/staged-results in 1 resource" in reader.run(waits), "the namespace waits for its write")

    printed = reader.run(install)

    assert f"nothing was made in the namespace {PAGES_NAMESPACE}, which is being deleted" in printed
    reader.until_gone(f"namespace {PAGES_NAMESPACE}")
    assert user.ids() == []
    assert "WARNING" not in reader.run(upgrade)
    again = reader.user("flights-iceberg")
    commit(again)
    assert again.ids() == list(range(ROWS))


def test_the_chart_is_removed_to_the_last_object_and_installed_again_as_its_readme_says(reader: Reader) -> None:
    """Its own names of the release and of the namespace, in which nothing was before, and the CRD that helm itself applies."""
    reader.follow(UNINSTALL, "kubectl delete checkpointedwrites --all")
    reader.follow(CHART, "kubectl delete namespace checkpointed-writes")

    printed = reader.follow(CHART, "helm install checkpointed-writes charts/checkpointed-write-operator \\")
    assert "ready: catalog lakehouse answers" in printed
    assert "serverside-applied" in reader.follow(
        CHART, "kubectl apply --server-side --force-conflicts -f charts/checkpointed-write-operator/crds/"
    )
    user = reader.user("flights")
    commit(user)

    reader.run(said(CHART, "kubectl delete cw --all -A"))
    reader.run("helm uninstall checkpointed-writes --namespace checkpointed-writes-system")
    reader.follow(CHART, "kubectl delete namespace checkpointed-writes")
    assert reader.run("kubectl get namespaces,crd -o name").count("checkpointed") == 2, "the namespaces of the releases"
    reader.run("kubectl delete namespace checkpointed-writes-system")
