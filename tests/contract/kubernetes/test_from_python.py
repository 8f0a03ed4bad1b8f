"""Writes that Python applies to a real API server, with their code, and waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

import checkpointed_writes as cw
from checkpoint_protocol.manifest.spec import API_VERSION
from checkpointed_writes import Write, WriteFailed
from devtools.kubernetes.api_server_only import ApiServer
from tests.support.waiting import patience

CRDS = Path(__file__).resolve().parents[3] / "crds"
GROUP, VERSION = API_VERSION.split("/")


@pytest.fixture
def custom(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[client.CustomObjectsApi]:
    api_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    api_server.wait_for_kinds()
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(api_server.kubeconfig))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_steps.py").write_text("from own_words import WORDS\ndef step(row): return row\n")
    (tmp_path / "own_words.py").write_text("WORDS = 1\n")
    (tmp_path / "unused.py").write_text("")
    yield client.CustomObjectsApi(config.new_client_from_config(str(api_server.kubeconfig)))  # type: ignore[no-untyped-call]
    api_server.kubectl("delete", "checkpointedwrites,configmaps", "--all", "-n", "default", "--wait=true")


def a_write(name: str, call: str = "own_steps:step") -> Write:
    rows = cw.read_parquet("s3://b/in").step(call)
    return rows.write_lance("s3://b/v.lance", name=name).options(code={"path": "."})


def put_status(custom: client.CustomObjectsApi, name: str, **status: Any) -> None:
    """As an operator does."""
    custom.patch_namespaced_custom_object_status(
        GROUP, VERSION, "default", "checkpointedwrites", name, {"status": {"observedGeneration": 1, **status}}
    )


def test_a_write_is_applied_with_the_modules_of_its_code_and_applied_again_changed(custom: client.CustomObjectsApi) -> None:
    a_write("first").apply()
    a_write("first").options(backoff_limit=7).apply("default")

    made: Any = custom.get_namespaced_custom_object(GROUP, VERSION, "default", "checkpointedwrites", "first")
    assert made["spec"]["code"] == {"configMap": {"name": "first-code"}}
    assert made["spec"]["backoffLimit"] == 7
    code: Any = client.CoreV1Api(custom.api_client).read_namespaced_config_map("first-code", "default")
    assert sorted(code.data) == ["own_steps.py", "own_words.py"]


def test_a_write_is_waited_for_until_it_is_committed(custom: client.CustomObjectsApi) -> None:
    write = a_write("waited")
    write.apply()
    with pytest.raises(WriteFailed, match="neither committed nor stalled in 1 s"):
        write.wait(timeout=1)

    commit = threading.Timer(0.5, put_status, (custom, "waited"), {"phase": "Committed", "rowsCommitted": 3})
    commit.start()
    status = write.wait(timeout=patience(60))

    commit.join()
    assert status["rowsCommitted"] == 3


def test_a_write_that_is_stalled_ends_the_wait_with_its_reason_and_one_of_an_earlier_spec_does_not(
    custom: client.CustomObjectsApi,
) -> None:
    write = a_write("stalled")
    write.apply()
    put_status(custom, "stalled", phase="Stalled", reason="CodeFailed", message="mend the step")

    with pytest.raises(WriteFailed, match="mend the step") as failed:
        write.wait(timeout=patience(60))
    write.options(backoff_limit=7).apply()
    with pytest.raises(WriteFailed, match="neither committed nor stalled"):
        write.wait(timeout=1)

    assert failed.value.reason == "CodeFailed"


def test_what_the_api_server_refuses_is_told_in_its_words(custom: client.CustomObjectsApi) -> None:
    a_write("changed").apply()
    moved = cw.read_parquet("s3://b/in").step("own_steps:step").write_lance("s3://b/other.lance", name="changed")

    with pytest.raises(WriteFailed, match="cannot be changed, because it identifies the write"):
        moved.options(code={"path": "."}).apply()


def test_code_that_no_config_map_holds_is_refused_by_its_name(custom: client.CustomObjectsApi, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("def step(row): return row\n")

    with pytest.raises(
        WriteFailed, match=r"package/__init__\.py is not a text file in the folder itself; build a wheel"
    ) as failed:
        a_write("large", "package:step").apply()
    assert failed.value.reason == "CodeMissing"


def test_without_a_cluster_it_is_said_where_one_is_named(
    custom: client.CustomObjectsApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", "/nowhere")

    with pytest.raises(WriteFailed, match=r"no cluster is known here: .*; see kubectl config"):
        a_write("nowhere").apply()
