"""Many writes with a trigger on a real cluster: each row once, no epoch without news, and few writes to the API."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from tests.cluster.test_what_people_see import changes_in_the_api
from tests.cluster.user import User

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
WRITES, ROWS, EPOCHS = 20, 10, 20
#: A driver for each write, which waits for the next epoch: all of them start at once, on the cores of one machine.
FIRST_EPOCH_S, EPOCH_S = 400, 100
#: Changes in the API for an epoch: what the status says of its way to the commit.
MOST_CHANGES = 14


def test_twenty_writes_that_look_every_ten_seconds_take_each_file_once(users: Callable[[], User]) -> None:
    writes = [users() for _ in range(WRITES)]
    for number, user in enumerate(writes):
        user.make_place("lance" if number % 2 else "iceberg")
        source = user.put_rows("0.parquet", 0, ROWS)
        manifest = user.write(source, trigger={"every": "10s", "keepDriver": "30m"})
        driver = manifest["spec"]["driver"]
        driver["memory"] = "512Mi"
        # All drivers are there at once, and wait most of the time: the node has room for them all.
        driver["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "20m"}}
        user.apply(manifest)
    await_epoch(writes, 1, FIRST_EPOCH_S)

    before = changes_in_the_api(writes[0])
    for epoch in range(2, EPOCHS + 1):
        for user in writes:
            user.put_rows(f"{epoch - 1}.parquet", (epoch - 1) * ROWS, ROWS)
        await_epoch(writes, epoch, EPOCH_S)
    changes = changes_in_the_api(writes[0]) - before

    for user in writes:
        assert user.place is not None
        assert user.ids() == list(range(EPOCHS * ROWS))
        assert len(user.place.keys()) == EPOCHS
    each = changes / (WRITES * (EPOCHS - 1))
    sys.stdout.write(f"{each:.1f} writes to the API for each epoch\n")
    assert each <= MOST_CHANGES


def await_epoch(writes: list[User], epoch: int, seconds: int) -> None:
    for user in writes:
        user.until(partial(has_all, user, epoch), seconds, what=f"epoch {epoch} of {user.name}")


def has_all(user: User, epoch: int) -> bool:
    return len(user.ids()) >= epoch * ROWS
