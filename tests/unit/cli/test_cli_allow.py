"""A settings file that came with somebody else's manifest uses nothing of the user's before the user has allowed it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_local.cli.main import main


class Listener:
    """An endpoint of somebody else, which keeps what it is sent."""

    def __init__(self) -> None:
        self.heard = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                self.heard += connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CHECKPOINTED_WRITE_SETTINGS", raising=False)
    monkeypatch.setenv("MY_TOKEN", "geheim-geheim")
    made = tmp_path / "downloaded"
    made.mkdir()
    (made / "in.csv").write_text("id\n1\n")
    document = {
        "apiVersion": "checkpointed.dev/v1alpha1",
        "kind": "CheckpointedWrite",
        "metadata": {"name": "nightly"},
        "spec": {
            "source": {"files": {"format": "csv", "paths": ["in.csv"]}},
            "sink": {"iceberg": {"catalog": "lake", "table": "db.rows"}},
            "checkpoint": {"uri": "checkpoints"},
        },
    }
    (made / "write.yaml").write_text(yaml.safe_dump(document))
    return made


def settings(folder: Path, **document: Any) -> Path:
    path = folder / "checkpointed-write.settings.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def lake(port: int, **more: Any) -> dict[str, Any]:
    return {"lake": {"type": "rest", "uri": f"http://127.0.0.1:{port}/", "token": {"env": "MY_TOKEN"}, **more}}


def say(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.mark.parametrize("command", ["validate", "run", "status", "forget"])
def test_a_token_goes_to_no_endpoint_that_the_user_has_not_allowed(folder: Path, listener: Listener, command: str) -> None:
    path = settings(folder, catalogs=lake(listener.port))

    said = say(command, str(folder / "write.yaml"))

    assert said.exit_code == 2
    assert listener.heard == b""
    assert "the variable MY_TOKEN" in said.output
    assert f"checkpointed-write allow {path}" in " ".join(said.output.split())
    assert "--settings" in said.output


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_allowed_file_counts_until_it_is_changed(folder: Path, listener: Listener) -> None:
    path = settings(folder, catalogs=lake(listener.port))

    allowed = say("allow", str(path))
    assert allowed.exit_code == 0
    assert f"the variable MY_TOKEN for catalogs.lake, http://127.0.0.1:{listener.port}/" in allowed.output
    say("validate", str(folder / "write.yaml"))
    assert b"geheim-geheim" in listener.heard

    listener.heard = b""
    settings(folder, catalogs=lake(listener.port, scope="more"))
    said = say("validate", str(folder / "write.yaml"))
    assert "checkpointed-write allow" in " ".join(said.output.split())
    assert listener.heard == b""


def test_an_allowance_is_of_one_place(folder: Path, listener: Listener) -> None:
    path = settings(folder, catalogs=lake(listener.port))
    say("allow", str(path))
    other = folder.parent / "other"
    folder.rename(other)

    said = say("validate", str(other / "write.yaml"))

    assert said.exit_code == 2
    assert listener.heard == b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_file_that_the_user_names_needs_no_allowance(
    folder: Path, listener: Listener, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings(folder, catalogs=lake(listener.port))
    words = ["--settings", str(path)] if how == "option" else []
    if how == "variable":
        monkeypatch.setenv("CHECKPOINTED_WRITE_SETTINGS", str(path))

    say("validate", str(folder / "write.yaml"), *words)

    assert b"geheim-geheim" in listener.heard


@pytest.mark.parametrize(
    ("entry", "claim"),
    [
        ({"endpoint": "http://127.0.0.1:9", "access_key_id": {"env": "MY_TOKEN"}}, "the variable MY_TOKEN"),
        ({"endpoint": "http://127.0.0.1:9", "secret_access_key": {"file": "/run/key"}}, "the file /run/key"),
        ({"endpoint": "http://127.0.0.1:9", "credentials": "ambient"}, "the identity of this machine"),
        ({"service_account_file": "/home/me/key.json"}, "the file /home/me/key.json"),
    ],
)
def test_everything_of_the_user_that_a_storage_entry_names_is_asked_for(folder: Path, entry: dict[str, Any], claim: str) -> None:
    settings(folder, storage=[{"prefix": "s3://bucket/", **entry}])

    said = say("validate", str(folder / "write.yaml"))

    assert said.exit_code == 2
    assert claim in " ".join(said.output.split())


def test_a_database_to_which_the_client_would_send_what_it_finds_is_asked_for(folder: Path) -> None:
    uri = "postgresql+psycopg2://me:geheim@127.0.0.1:9/db"
    settings(folder, catalogs={"lake": {"type": "sql", "uri": uri, "warehouse": "w"}})

    said = say("validate", str(folder / "write.yaml"))

    assert "by itself for catalogs.lake, postgresql+psycopg2://127.0.0.1:9/" in " ".join(said.output.split())
    assert "geheim" not in said.output


def test_both_servers_that_a_credential_is_sent_to_are_named(folder: Path) -> None:
    lake = {"type": "rest", "uri": "http://127.0.0.1:9", "oauth2_server_uri": "http://me@127.0.0.1:8/t"}
    settings(folder, catalogs={"lake": lake | {"credential": {"env": "MY_SECRET"}}})

    said = say("validate", str(folder / "write.yaml"))

    assert "the variable MY_SECRET for catalogs.lake, http://127.0.0.1:9 and http://127.0.0.1:8/" in " ".join(said.output.split())


@pytest.mark.parametrize(
    ("identity", "claim"),
    [
        ({"access_key_id": {"env": "MY_KEY"}, "secret_access_key": "s"}, "the variable MY_KEY for catalogs.lake"),
        ({"credentials": "ambient"}, "the identity of this machine for catalogs.lake"),
    ],
)
def test_whoever_signs_the_requests_of_a_catalog_is_asked_for(folder: Path, identity: dict[str, Any], claim: str) -> None:
    signing = {"region": "eu-central-1", "name": "s3tables", **identity}
    settings(folder, catalogs={"lake": {"type": "rest", "uri": "http://127.0.0.1:9", "signing": signing}})

    said = say("validate", str(folder / "write.yaml"))

    assert said.exit_code == 2
    assert claim in " ".join(said.output.split())


def test_a_file_without_anything_of_the_user_needs_no_allowance(folder: Path) -> None:
    settings(
        folder,
        catalogs={"lake": {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "w"}},
        storage=[{"prefix": "s3://bucket/", "endpoint": "http://127.0.0.1:9", "credentials": "anonymous"}],
    )

    assert "allow" not in say("validate", str(folder / "write.yaml")).output


def test_a_note_that_cannot_be_read_allows_nothing(folder: Path, listener: Listener) -> None:
    path = settings(folder, catalogs=lake(listener.port))
    say("allow", str(path))
    (note,) = (folder.parent / "config" / "checkpointed-write" / "allowed").iterdir()
    note.write_text("{")

    assert say("validate", str(folder / "write.yaml")).exit_code == 2
    assert listener.heard == b""


def test_a_file_that_is_not_there_is_not_allowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    said = say("allow")

    assert said.exit_code == 2
    assert "checkpointed-write.settings.yaml: cannot be read" in said.output
