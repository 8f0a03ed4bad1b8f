"""Steps that call a service, with the real thing: the installed command, Spark's task processes, requests over sockets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import parse_manifest
from checkpoint_protocol.records import Seal
from checkpoint_protocol.store.macs import without_mac
from devtools.ports import free_port
from tests.end_to_end.conftest import make_place
from tests.end_to_end.test_dataframes import write_orc
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill_with_all_below, wait_for_end
from tests.support.http_service import Service, serving
from tests.support.places import Place
from tests.support.waiting import patience, until
from tests.support.writes import SCHEMA, manifest_for, write_inputs

pytestmark = pytest.mark.spark
ROWS = 400
MOST_ROWS = 20
CONCURRENCY = 4
EXAMPLES = Path(__file__).parents[2] / "examples"

ASKING = """
import aiohttp

class Ask:
    def __init__(self, url):
        self.url = url

    async def setup(self):
        self.session = aiohttp.ClientSession(raise_for_status=True)

    async def __call__(self, row):
        async with self.session.get(f"{self.url}/{row['id']}") as response:
            assert int(await response.text()) == row["id"]
        return row
"""


def asking(service: Service, place: Place, folder: Path, way: str, most_rows: int | None = MOST_ROWS, **step: Any) -> CommandLine:
    """Return a write whose step asks the service about each row. It seals by rows alone, or not before the end."""
    code = folder / "code"
    code.mkdir()
    (code / "asking.py").write_text(ASKING)
    place.create(SCHEMA)
    if way == "keys":
        write_orc(folder / "in")
        source: Any = {"spark": {"format": "orc", "paths": [str(folder / "in")], "keyColumns": ["id"]}}
    else:
        source = write_inputs(folder / "in")
    manifest = manifest_for(
        place,
        source,
        steps=[{"call": "asking:Ask", "input": "row", "arguments": {"url": service.url}, "concurrency": CONCURRENCY, **step}],
        code={"path": str(code)},
        checkpoint={"uri": place.checkpoint_uri, "interval": "1h", **({"maximumRows": most_rows} if most_rows else {})},
    )
    return CommandLine(folder / "cli", place, manifest)


def seals_of(ledger: Ledger, attempt: int) -> list[Seal]:
    return list(ledger.chains.counted_seals([attempt]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("splits", "iceberg-sql-s3"),
        ("splits", "lance-disk"),
        ("keys", "iceberg-sql-disk"),
        ("keys", "lance-s3"),
    ],
)
def test_a_driver_killed_amid_calls_is_followed_by_one_that_asks_for_nothing_that_is_sealed(
    way: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place(name, tmp_path, request)
    with serving(Service(held_after=ROWS // 2)) as service:
        command = asking(service, place, tmp_path, way)
        runner = command.start()
        until(lambda: command.seals(1) >= 2 and service.asked.total() > ROWS // 2, "seals, and calls that wait")

        # Task processes that are left would wait for the service, and go on when it answers.
        kill_with_all_below(driver_of(runner))
        service.open()
        code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(place, range(ROWS))
    assert len(place.keys()) == 1
    assert CONCURRENCY <= service.most_at_once <= 2 * 2 * CONCURRENCY, "two tasks at once, of which the killed leave their calls"
    ledger = command.ledger()
    assert ledger is not None
    sealed = [seal.rows_read for seal in seals_of(ledger, 1)]
    assert len(sealed) >= 2
    assert max(sealed) <= MOST_ROWS
    assert sum(seal.rows_read for seal in seals_of(ledger, 2)) == ROWS - sum(sealed)
    assert set(service.asked) == set(range(ROWS))
    again = sum(service.asked.values()) - ROWS
    # Not what the service had counted at the kill: what was sent before may be read after it.
    asked_at_most = ROWS // 2 + 2 * CONCURRENCY
    assert again <= asked_at_most - sum(sealed), "only calls of rows that were not sealed are made again"


def results_kept(command: CommandLine) -> int:
    """Return how many results of the first attempt lie in the store."""
    ledger = command.ledger()
    if ledger is None:
        return 0
    objects = [ledger.store.get(stored.path, 1 << 20) for stored in ledger.store.list(ledger.at.memos(1))]
    return sum(len(json.loads(without_mac(data))["calls"]) for data in objects if data is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "name"), [("splits", "iceberg-sql-disk"), ("keys", "lance-s3")])
def test_after_a_kill_before_any_seal_hardly_a_call_is_made_again_whose_result_was_kept(
    way: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place(name, tmp_path, request)
    # Of four tasks none is done then.
    held_after = ROWS // 5
    with serving(Service(held_after=held_after)) as service:
        command = asking(service, place, tmp_path, way, most_rows=None, memo=True)
        runner = command.start()
        until(lambda: results_kept(command) == held_after, "all that was answered, which is kept")

        kill_with_all_below(driver_of(runner))
        service.open()
        code, output = wait_for_end(runner)

    assert code == 0, output
    assert_exactly_once(place, range(ROWS))
    ledger = command.ledger()
    assert ledger is not None
    assert not seals_of(ledger, 1)
    assert set(service.asked) == set(range(ROWS))
    again = sum(service.asked.values()) - ROWS
    assert again <= 2 * CONCURRENCY, "two tasks at once: the calls that were on their way"
    assert not list(ledger.store.list(ledger.at.memos(2))), "what is sealed is not kept"


def test_the_example_asks_a_service_that_refuses_now_and_then_about_every_airport_once(
    iceberg_place: Place, tmp_path: Path
) -> None:
    """With Retry-After, a rate limit, and idempotency keys: examples/answers-iceberg.yaml, and the service beside it."""
    document = yaml.safe_load((EXAMPLES / "answers-iceberg.yaml").read_text())
    spec = document["spec"]
    with (tmp_path / "airports.csv").open("w") as file:
        file.write("faa,name\n" + "".join(f"A{number},Airport {number}\n" for number in range(ROWS)))
    spec["source"]["files"]["paths"] = [str(tmp_path / "airports.csv")]
    spec["code"]["path"] = str(EXAMPLES / "code")
    spec["sink"] = {**iceberg_place.sink(), "create": True}
    spec["checkpoint"]["uri"] = iceberg_place.checkpoint_uri
    port = free_port()
    spec["steps"][0]["arguments"]["url"] = f"http://127.0.0.1:{port}/answer"
    command = CommandLine(tmp_path / "cli", iceberg_place, parse_manifest(document))
    asked = tmp_path / "asked.log"
    with asked.open("wb") as log:
        service = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "answer_service.py"), "--port", str(port), "--refuse", "0.1"], stdout=log
        )
    try:
        until(lambda: "serving on" in asked.read_text(), "the service", 60)
        code, output = command.run()
        service.terminate()
        service.wait(patience(30))
    finally:
        service.kill()
        service.wait()

    assert code == 0, output
    rows = iceberg_place.rows()
    assert sorted(row["airport"] for row in rows) == sorted(f"A{number}" for number in range(ROWS))
    assert all(row["answer"].startswith("I would say: ") and row["tokens"] > 0 for row in rows)
    calls, refused, again = (int(count.replace(",", "")) for count in re.findall(r"\d[\d,]*", asked.read_text().splitlines()[-1]))
    assert calls == ROWS + refused
    assert 0 < refused < ROWS / 2
    assert again == 0
