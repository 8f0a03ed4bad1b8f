"""The example of docs/guides/pipelines.md on real text, with the installed command and Spark: killed and edited on its way."""

from __future__ import annotations

import json
import shutil
import sysconfig
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from tests.support.command_line import CommandLine, kill_with_all_below
from tests.support.places import Place
from tests.support.waiting import until
from tests.support.writes import manifest_for

pytestmark = pytest.mark.spark

DOCS = """
def parse(row):
    text = row["content"].decode("utf-8", "replace")
    name = row["path"].rsplit("/", 1)[-1]
    for number, paragraph in enumerate(part for part in text.split("\\n\\n") if part.strip()):
        with open({log!r}, "a") as log:
            log.write("parse\\n")
        yield {{"document": name, "number": number, "text": paragraph}}
"""
MODELS = """
import zlib
def embed(row):
    vector = [0.0] * 8
    for word in row["text"].lower().split():
        vector[zlib.crc32(word.encode()) % 8] += 1.0
    with open({log!r}, "a") as log:
        log.write("embed\\n")
    return {{**row, "vector": vector}}
"""
REPORT = """
import os, time
import pyarrow as pa
import pyarrow.compute as pc
seen = 0
def summarise(rows):
    # Long enough for its bucket to be sealed; what comes after some of them waits for the gate.
    global seen
    seen += 1
    time.sleep(0.06)
    while seen > 3 and not os.path.exists({gate!r}):
        time.sleep(0.02)
    words = pc.sum(rows.column("vector").flatten()).as_py()
    made = {{"document": rows.column("document")[0].as_py(), "paragraphs": rows.num_rows, "words": int(words)}}
    return pa.RecordBatch.from_pylist([{{**made, "version": {version}}}])
"""
TABLE = pa.schema(
    [
        ("document", pa.string()),
        ("paragraphs", pa.int64()),
        ("words", pa.int64()),
        ("version", pa.int64()),
    ]
)


def copy_texts(folder: Path) -> dict[tuple[str, int], int]:
    """Copy licences that installed packages ship, and return how many words each of their paragraphs has."""
    folder.mkdir()
    expected: dict[tuple[str, int], int] = {}
    for place, text in enumerate(_licences()):
        name = f"{place}.txt"
        shutil.copy(text, folder / name)
        paragraphs = [part for part in text.read_bytes().decode("utf-8", "replace").split("\n\n") if part.strip()]
        expected |= {(name, number): len(paragraph.split()) for number, paragraph in enumerate(paragraphs)}
    return expected


def _licences() -> Iterator[Path]:
    found = sorted(Path(sysconfig.get_paths()["purelib"]).rglob("LICENSE*"))
    sizes = [path for path in found if path.is_file() and 1_000 < path.stat().st_size < 20_000]
    return iter(sizes[:24])


# Five drivers are started, one after the other.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_stages_on_real_text_survive_a_kill_and_an_edit_among_the_groups_of_the_last(
    iceberg_place: Place, tmp_path: Path
) -> None:
    expected = copy_texts(tmp_path / "in")
    log, gate, code = tmp_path / "rows.log", tmp_path / "gate", tmp_path / "code"
    code.mkdir()
    (code / "docs.py").write_text(DOCS.format(log=str(log)))
    (code / "models.py").write_text(MODELS.format(log=str(log)))
    (code / "report.py").write_text(REPORT.format(gate=str(gate), version=1))
    iceberg_place.create(TABLE)
    types = {"document": "string", "number": "int64"}
    manifest = manifest_for(
        iceberg_place,
        {"files": {"format": "binary", "paths": [str(tmp_path / "in")]}},
        stages=[
            {
                "name": "parse",
                "code": ["docs"],
                "steps": [{"call": "docs:parse", "input": "row", "output": {**types, "text": "string"}}],
            },
            {
                "name": "embed",
                "code": ["models"],
                "steps": [
                    {
                        "call": "models:embed",
                        "input": "row",
                        "output": {**types, "text": "string", "vector": "list<double>"},
                    }
                ],
            },
            {
                "name": "summarise",
                "kind": "Aggregate",
                "keyBy": ["document"],
                "code": ["report"],
                "steps": [{"call": "report:summarise"}],
            },
        ],
        code={"path": str(code)},
        checkpoint={"uri": iceberg_place.checkpoint_uri, "interval": "0.05s", "minimumBytes": "1"},
    )
    command = CommandLine(tmp_path / "cli", iceberg_place, manifest)

    # Among the groups, of which some buckets are sealed, the runner is killed, and its driver with it.
    runner = command.start()
    for name in ("parse", "embed", "summarise-shuffle"):
        until(partial(is_done, command, name), f"the end of {name}")
    until(lambda: groups_sealed(command) >= 2, "seals of groups")
    kill_with_all_below(psutil.Process(runner.pid))
    runner.kill()

    # What is not done is edited: the groups that are left are made with the new code. What is done knows nothing of this module.
    (code / "report.py").write_text(REPORT.format(gate=str(gate), version=2))
    gate.touch()
    before = {one["name"]: one for one in plan(command)}
    assert {name: one["what"] for name, one in before.items()} == {
        "parse": "keep",
        "embed": "keep",
        "summarise-shuffle": "keep",
        "summarise": "continue",
    }
    assert before["summarise"]["rowsDone"] + before["summarise"]["rowsLeft"] == len(expected)
    ended, output = command.run()

    assert ended == 0, output
    rows = iceberg_place.rows()
    documents = Counter(name for name, _ in expected)
    assert {row["document"]: row["paragraphs"] for row in rows} == documents, "not all paragraphs of a document"
    assert {row["document"]: row["words"] for row in rows} == {
        document: sum(words for (name, _), words in expected.items() if name == document) for document in documents
    }
    assert len(rows) == len(documents)
    assert len(iceberg_place.keys()) == 1
    assert {row["version"] for row in rows} == {1, 2}
    kept = sum(row["paragraphs"] for row in rows if row["version"] == 1)
    assert kept == before["summarise"]["rowsDone"], "groups that were kept, and no others"
    assert Counter(log.read_text().split()) == dict.fromkeys(("parse", "embed"), len(expected)), "what is done is not done again"
    trace = command.say("trace", str(command.file), "--source-file", rows[0]["document"])
    assert all(f"\n  {name}\n" in trace for name in ("parse", "embed", "summarise-shuffle", "summarise")), trace
    assert json.loads(command.say("plan", str(command.file), "-o", "json"))["isCommitted"] is True


def plan(command: CommandLine) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(command.say("plan", str(command.file), "-o", "json"))["stages"]
    return shown


def stage(command: CommandLine, name: str) -> Ledger | None:
    epoch = command.ledger()
    if epoch is None:
        return None
    keys: list[EpochKey] = [key for key in writes.list_stages(epoch.store, epoch.key) if key.stage.startswith(f"{name}-")]
    return Ledger(epoch.store, keys[-1]) if keys else None


def is_done(command: CommandLine, name: str) -> bool:
    ledger = stage(command, name)
    return ledger is not None and ledger.commits.read_commit() is not None


def groups_sealed(command: CommandLine) -> int:
    epoch = command.ledger()
    return sum(epoch.seals.list_links(1).values()) if epoch is not None else 0
