"""What `helm test` tries beside the API server: each catalog and each storage prefix of the settings, on real servers."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from checkpoint_operator.check import check_settings
from checkpoint_protocol import reasons
from checkpoint_protocol.places.settings import RestCatalogSettings, Settings
from checkpoint_protocol.places.storage import StorageEntry
from devtools.kubernetes.api_server_only import ApiServer
from devtools.ports import LOOPBACK, free_port
from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server
from tests.support.slow import slow_except
from tests.support.waiting import patience

CRDS = Path(__file__).resolve().parents[3] / "crds"


def storage(server: S3Server, prefix: str, key: str | None = None) -> StorageEntry:
    return StorageEntry(
        prefix=prefix,
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=SecretStr(server.access_key),
        secret_access_key=SecretStr(key or server.secret_key),
    )


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.make_bucket(f"check-{secrets.token_hex(6)}")


def test_catalogs_and_storage_that_answer_are_named_one_by_one(
    s3_server: S3Server, rest_catalog: RestCatalog, bucket: str
) -> None:
    s3_server.store(bucket).put("there/already", b"x")
    settings = Settings(
        catalogs={"lakehouse": RestCatalogSettings(uri=rest_catalog.uri)},
        storage=(storage(s3_server, f"s3://{bucket}"), storage(s3_server, f"s3://{bucket}/nothing/yet/")),
    )

    assert list(check_settings(settings)) == [
        ("catalog lakehouse", None),
        (f"storage s3://{bucket}", None),
        (f"storage s3://{bucket}/nothing/yet/", None),
    ]


def test_each_that_does_not_answer_is_told_with_its_reason_and_keeps_none_of_the_others_from_being_tried(
    s3_server: S3Server, rest_catalog: RestCatalog, bucket: str
) -> None:
    settings = Settings(
        catalogs={
            "down": RestCatalogSettings(uri=f"http://{LOOPBACK}:{free_port()}"),
            "lakehouse": RestCatalogSettings(uri=rest_catalog.uri),
        },
        storage=(
            storage(s3_server, f"s3://{bucket}-which-is-not"),
            storage(s3_server, f"s3://{bucket}/refused", key="another"),
            storage(s3_server, f"s3://{bucket}"),
        ),
    )

    checked = {what: error and (error.reason, error.message) for what, error in check_settings(settings)}

    assert {what: told and told[0] for what, told in checked.items()} == {
        "catalog down": reasons.CATALOG_UNAVAILABLE,
        "catalog lakehouse": None,
        f"storage s3://{bucket}-which-is-not": reasons.STORE_UNAVAILABLE,
        f"storage s3://{bucket}/refused": reasons.CREDENTIALS_REFUSED,
        f"storage s3://{bucket}": None,
    }
    assert "does not exist" in str(checked[f"storage s3://{bucket}-which-is-not"])
    assert "another" not in str(checked)


def test_an_entry_for_all_buckets_of_a_kind_and_one_of_a_folder_name_no_place_to_try() -> None:
    settings = Settings(storage=(StorageEntry(prefix="s3://"), StorageEntry(prefix="/mnt/lake")))

    assert list(check_settings(settings)) == []


@pytest.mark.parametrize(("name", "code"), slow_except([("lakehouse", 0), ("down", 1)], ("down", 1)))
def test_the_program_says_what_answers_and_ends_accordingly(
    api_server: ApiServer, rest_catalog: RestCatalog, tmp_path: Path, name: str, code: int
) -> None:
    api_server.kubectl("apply", "--server-side", "-f", str(CRDS))
    api_server.wait_for_kinds()
    uris = {"lakehouse": rest_catalog.uri, "down": f"http://{LOOPBACK}:{free_port()}"}
    settings = {"catalogs": {name: {"type": "rest", "uri": uris[name]}}}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "operator.yaml").write_text(yaml.safe_dump({"namespaces": ["team"], "workloads": {"image": "none"}}))
    files = ["--config", str(tmp_path / "operator.yaml"), "--settings", str(tmp_path / "settings.yaml")]

    done = subprocess.run(
        [sys.executable, "-m", "checkpoint_operator.main", *files, "--check"],
        env={"KUBECONFIG": str(api_server.kubeconfig), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )

    assert done.returncode == code, done.stderr
    answer = {"lakehouse": "ready: catalog lakehouse answers", "down": "error: catalog down: CatalogUnavailable: "}[name]
    assert answer in done.stdout
