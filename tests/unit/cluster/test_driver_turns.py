"""Who may start a driver next, where a namespace may have only so many at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_operator.turns.turns import DriverTurns
from checkpoint_operator.watch.cache import WriteName


def write(name: str, namespace: str = "n") -> WriteName:
    return WriteName(namespace, name)


@dataclass
class Scene:
    most: int = 2
    now_s: float = 0.0
    pods: set[WriteName] = field(default_factory=set)
    turns: DriverTurns = field(init=False)

    def __post_init__(self) -> None:
        self.turns = DriverTurns(self.most, self._at_work, lambda: self.now_s)

    def _at_work(self, namespace: str) -> set[WriteName]:
        return {key for key in self.pods if key.namespace == namespace}


def test_without_a_bound_everybody_may_start() -> None:
    scene = Scene(most=0, pods={write(str(number)) for number in range(50)})

    assert scene.turns.request(write("a")) is None


def test_turns_that_were_given_count_before_their_pods_are_seen() -> None:
    scene = Scene()

    assert [scene.turns.request(write(name)) for name in "abcd"] == [None, None, 0, 1]


def test_a_turn_that_is_not_used_is_free_again() -> None:
    scene = Scene(most=1)
    scene.turns.request(write("a"))

    scene.now_s = 31.0

    assert scene.turns.request(write("b")) is None


def test_who_came_first_is_served_first_however_often_the_others_ask() -> None:
    scene = Scene(most=1, pods={write("at work")})
    for name in "abcba":
        scene.turns.request(write(name))

    scene.pods.clear()

    assert scene.turns.request(write("b")) == 1
    assert scene.turns.next_of("n") == write("a")
    assert scene.turns.request(write("a")) is None
    assert scene.turns.request(write("b")) == 0


def test_who_does_not_ask_any_more_holds_nobody_up() -> None:
    scene = Scene(most=1, pods={write("at work")})
    scene.turns.request(write("deleted since"))
    scene.now_s = 60.0
    scene.turns.request(write("a"))
    scene.pods.clear()

    scene.now_s = 121.0

    assert scene.turns.request(write("a")) is None


def test_who_asks_again_after_long_waits_behind_those_that_have_come_since() -> None:
    scene = Scene(most=1, pods={write("at work")})
    scene.turns.request(write("back again"))
    scene.now_s = 60.0
    scene.turns.request(write("a"))

    scene.now_s = 121.0

    assert scene.turns.request(write("back again")) == 1


def test_namespaces_do_not_wait_for_each_other() -> None:
    scene = Scene(most=1, pods={write("at work")})

    assert scene.turns.request(write("a")) == 0
    assert scene.turns.request(write("a", "other")) is None


def test_a_write_whose_own_driver_still_ends_does_not_wait_for_itself() -> None:
    scene = Scene(most=1, pods={write("a")})

    assert scene.turns.request(write("a")) is None


def test_nobody_is_woken_while_no_place_is_free() -> None:
    scene = Scene(most=1, pods={write("at work")})
    scene.turns.request(write("a"))

    assert scene.turns.next_of("n") is None
