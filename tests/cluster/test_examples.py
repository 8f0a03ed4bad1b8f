"""The examples for clusters, applied with the commands that stand in them: their code has all that it needs in a pod."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import yaml

from checkpoint_protocol.store.object_store import open_raw_store
from examples.prepare_data import packaged
from tests.cluster.installation import ROOT
from tests.cluster.user import User
from tests.support.commands_of_examples import commands_of

EXAMPLES = ROOT / "examples" / "cluster"
FLIGHTS = 2_000


def follow(user: User, example: Path, folder: Path) -> None:
    """Do what an example says, up to its kubectl apply, with a bucket, a catalog and a namespace of this installation."""
    for words in commands_of(example):
        match words:
            case ["make", "setup"]:
                pass
            case [".venv/bin/python", "examples/prepare_data.py"]:
                lay_out_the_data(folder)
            case [".venv/bin/python", "-m", "zipfile", *_]:
                subprocess.run([sys.executable, *words[1:]], cwd=folder, check=True)
            case ["aws", "s3", "cp", path, uri]:
                put(user, folder / path, uri)
            case ["kubectl", "create", "configmap", _, "--namespace", _, *files]:
                named = [str(folder / word) if word != "--from-file" else word for word in files]
                user.kubectl("create", "configmap", f"{user.name}-code", "--namespace", user.namespace, *named)
            case ["kubectl", "apply", *_, "--filename", path]:
                user.apply(applied(user, ROOT / path))
            case ["kubectl", "wait", *_]:
                pass
            case _:
                raise AssertionError(f"nobody follows {words}")


def lay_out_the_data(folder: Path) -> None:
    """As examples/prepare_data.py does, with fewer flights."""
    (folder / "examples" / "data").mkdir(parents=True)
    with zipfile.ZipFile(packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as packed:
        lines = [packed.readline() for _ in range(FLIGHTS + 1)]
    (folder / "examples" / "data" / "flights.csv").write_bytes(b"".join(lines))
    (folder / "examples" / "code").mkdir()
    for path in (ROOT / "examples" / "code" / "flights.py", packaged("airports.csv")):
        (folder / "examples" / "code" / path.name).write_bytes(path.read_bytes())


def put(user: User, path: Path, uri: str) -> None:
    assert user.place is not None
    parent, _, name = in_the_lake(user, uri).rpartition("/")
    obstore.put(open_raw_store(parent, user.place.settings), name, path.read_bytes())


def in_the_lake(user: User, text: str) -> str:
    assert user.place is not None
    return text.replace("s3://lake", user.place.base_uri)


def applied(user: User, example: Path) -> dict[str, Any]:
    """Return the example with the places of this installation, and pods that fit into its node."""
    document: dict[str, Any] = yaml.safe_load(in_the_lake(user, example.read_text()))
    assert user.place is not None
    document["metadata"]["name"] = user.name
    spec = document["spec"]
    fitting = user.write("unused", executors=1)["spec"]
    sink = {"create": True, "partitionBy": spec["sink"].get("partitionBy", [])}
    if "configMap" in spec["code"]:
        spec["code"]["configMap"]["name"] = f"{user.name}-code"
    return document | {
        "spec": spec
        | {name: fitting[name] for name in ("driver", "executor", "sparkConf")}
        | {"sink": {**user.place.sink(), **sink}}
        | {"checkpoint": {"uri": user.place.checkpoint_uri}}
    }


def test_the_examples_for_clusters_are_committed_as_their_comments_say(users: Callable[[], User], tmp_path: Path) -> None:
    both = {name: users() for name in ("iceberg", "lance")}
    for kind, user in both.items():
        user.make_place(kind, with_table=False)
        follow(user, EXAMPLES / f"flights-{kind}.yaml", tmp_path / kind)

    for user in both.values():
        user.wait_for("Committed")
        assert user.place is not None
        rows = user.place.rows()
        assert len(rows) == FLIGHTS
        assert sum(row["kilometres"] is not None for row in rows) > FLIGHTS * 0.9, "the airports are there"
