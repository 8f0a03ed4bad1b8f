"""Steps that call a service, with the real thing: the installed command, Spark's task processes, requests over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.records import Seal
from tests.end_to_end.conftest import make_place
from tests.end_to_end.test_dataframes import write_orc
from tests.support.checks import assert_exactly_once
from tests.support.command_line import CommandLine, driver_of, kill_with_all_below, wait_for_end, wait_until
from tests.support.http_service import Service, serving
from tests.support.places import Place
from tests.support.writes import SCHEMA, manifest_for, write_inputs

pytestmark = pytest.mark.spark
ROWS = 400
MOST_ROWS = 20
CONCURRENCY = 4

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


def asking(service: Service, place: Place, folder: Path, way: str, **step: Any) -> CommandLine:
    """Return a write whose step asks the service about each row. It seals by rows alone."""
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
        checkpoint={"uri": place.checkpoint_uri, "interval": "1h", "maximumRows": MOST_ROWS},
    )
    return CommandLine(folder / "cli", place, manifest)


def seals_of(ledger: Ledger, attempt: int) -> list[Seal]:
    return list(ledger.chains.counted_seals([attempt]))


@pytest.mark.parametrize(
    ("way", "name"), [("splits", "iceberg-sql-s3"), ("splits", "lance-disk"), ("keys", "iceberg-sql-disk"), ("keys", "lance-s3")]
)
def test_a_driver_killed_amid_calls_is_followed_by_one_that_asks_for_nothing_that_is_sealed(
    way: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = make_place(name, tmp_path, request)
    with serving(Service(held_after=ROWS // 2)) as service:
        command = asking(service, place, tmp_path, way)
        runner = command.start()
        wait_until(lambda: command.seals(1) >= 2 and service.asked.total() > ROWS // 2, "seals, and calls that wait")

        # Task processes that are left would wait for the service, and go on when it answers.
        kill_with_all_below(driver_of(runner))
        before = service.asked.copy()
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
    assert again <= before.total() - sum(sealed), "only calls of rows that were not sealed are made again"
