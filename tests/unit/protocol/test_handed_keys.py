"""Keys that a catalog hands out: which of them are for a URI, when others are asked for, and what a driver waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange, Retryable
from checkpoint_protocol.places.handed_keys import HandedKeys, KeysFile, RenewedKeys, written
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings, lance_options, obstore_options

START = datetime(2030, 1, 1, tzinfo=UTC)


def keys_for(prefix: str, name: str, lives_s: float | None = None) -> HandedKeys:
    ends = None if lives_s is None else START + timedelta(seconds=lives_s)
    return HandedKeys(prefix=prefix, values={"access_key_id": name, "secret_access_key": "secret"}, expires_at=ends)


@dataclass
class Catalog:
    """Hands out `keys`; `passed_s` have passed since the start."""

    keys: Sequence[HandedKeys] = ()
    are_all: bool = True
    fails: Exception | None = None
    passed_s: float = 0.0
    asked: int = 0
    paused: list[float] = field(default_factory=list)

    def load(self) -> tuple[Sequence[HandedKeys], bool]:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        return self.keys, self.are_all

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed_s)

    def pause(self, seconds: float) -> None:
        self.passed_s += seconds

    def renewed(self) -> RenewedKeys:
        return RenewedKeys(self.load, self.now)


def name_of(found: HandedKeys | None) -> str | None:
    return found.values["access_key_id"] if found is not None else None


def test_the_keys_with_the_longest_prefix_are_those_for_a_uri() -> None:
    keys = Catalog([keys_for("s3", "any"), keys_for("s3://b/t/data", "data"), keys_for("s3://b/t", "table")]).renewed()

    found = [name_of(keys.find(uri)) for uri in ("s3://b/t/data/f", "s3://b/t/metadata/f", "s3://c/f", "gs://b/t/f")]

    assert found == ["data", "table", "any", None]


def test_keys_are_asked_for_anew_when_half_of_their_life_is_over() -> None:
    catalog = Catalog([keys_for("s3", "first", 100), keys_for("gs", "longer", 900)])
    keys = catalog.renewed()
    asked = []

    for passed_s in (0, 49, 50):
        catalog.passed_s = passed_s
        keys.all()
        asked.append(catalog.asked)

    assert asked == [1, 1, 2]


def test_keys_without_an_end_are_asked_for_once_and_those_of_a_missing_table_until_it_is_there() -> None:
    catalog = Catalog([keys_for("s3", "for ever")], are_all=False)
    keys = catalog.renewed()

    keys.all()
    catalog.are_all = True
    keys.all()
    keys.all()

    assert catalog.asked == 2


def test_a_catalog_that_does_not_answer_is_no_failure_while_the_keys_live() -> None:
    catalog = Catalog([keys_for("s3", "first", 100)])
    keys = catalog.renewed()
    keys.all()
    catalog.fails = Retryable(reasons.CATALOG_UNAVAILABLE, "the catalog sleeps")

    catalog.passed_s = 99
    assert name_of(keys.find("s3://b/t")) == "first"
    catalog.passed_s = 100
    with pytest.raises(Retryable, match="the catalog sleeps"):
        keys.find("s3://b/t")


def test_a_catalog_that_refuses_us_is_told_while_the_keys_live() -> None:
    catalog = Catalog([keys_for("s3", "first", 100)])
    keys = catalog.renewed()
    keys.all()
    catalog.fails, catalog.passed_s = NeedsChange(reasons.CREDENTIALS_REFUSED, "not you"), 60

    with pytest.raises(NeedsChange, match="not you"):
        keys.find("s3://b/t")


def test_a_driver_waits_for_keys_that_come_late_and_for_those_that_follow_others(tmp_path: Path) -> None:
    clock, file = Catalog(), tmp_path / "keys.json"

    def pause(seconds: float) -> None:
        clock.pause(seconds)
        if clock.passed_s == 5:
            file.write_bytes(written([keys_for("s3://b/t", "first", 8)]))
        if clock.passed_s == 20:
            file.write_bytes(written([keys_for("s3://b/t", "second", 100)]))

    keys = KeysFile(file, clock.now, pause)

    found = [name_of(keys.find("s3://b/t/f")), clock.passed_s]
    clock.passed_s = 8
    found += [name_of(keys.find("s3://b/t/f")), clock.passed_s]

    assert found == ["first", 5, "second", 20]


def test_a_driver_whose_keys_are_not_renewed_gives_up_for_this_time(tmp_path: Path) -> None:
    clock, file = Catalog(), tmp_path / "keys.json"
    file.write_bytes(written([keys_for("s3://b/t", "first", 8), keys_for("s3://b/u", "other")]))

    with pytest.raises(Retryable, match="no keys for s3://b/t/f that have not expired") as caught:
        KeysFile(file, lambda: clock.now() + timedelta(seconds=8), clock.pause).find("s3://b/t/f")

    assert caught.value.reason == reasons.CATALOG_UNAVAILABLE
    assert clock.passed_s == 150


def test_a_file_that_is_none_of_keys_is_told_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text('[{"prefix": "s3", "values": "my secret"}]')

    with pytest.raises(NeedsChange, match="cannot be read") as caught:
        KeysFile(file).find("s3://b/t")

    assert "my secret" not in caught.value.message


@pytest.mark.parametrize(
    ("scheme", "values", "variable"),
    [
        ("s3", {"access_key_id": "a", "secret_access_key": "s"}, "AWS_SESSION_TOKEN"),
        ("gs", {"token": "t"}, "GOOGLE_BEARER_TOKEN"),
        ("az", {"sas_token": "t"}, "AZURE_STORAGE_TOKEN"),
    ],
)
def test_lance_is_not_given_keys_beside_a_token_of_the_environment_which_it_would_send_with_them(
    scheme: str, values: dict[str, str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = StorageEntry(prefix=f"{scheme}://b/", account_name="account", credentials="vended")
    keys = Catalog([HandedKeys(prefix=scheme, values=values)]).renewed()
    settings = StorageSettings(storage=(entry,)).with_keys(keys)
    assert lance_options(f"{scheme}://b/t", settings)

    monkeypatch.setenv(variable, "of another")

    with pytest.raises(NeedsChange, match=f"unset {variable} for this process"):
        lance_options(f"{scheme}://b/t", settings)


def test_a_token_that_is_handed_out_goes_before_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"access_key_id": "a", "secret_access_key": "s", "token": "t"}
    settings = StorageSettings(storage=(StorageEntry(prefix="s3://b/", credentials="vended"),))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another")

    found = lance_options("s3://b/t", settings.with_keys(Catalog([HandedKeys(prefix="s3", values=values)]).renewed()))

    assert found["aws_session_token"] == "t"


def test_a_prefix_of_which_no_catalog_hands_out_keys_is_refused_with_the_way_out() -> None:
    settings = StorageSettings(storage=(StorageEntry(prefix="s3://b/", credentials="vended"),))

    for given in (settings, settings.with_keys(Catalog([keys_for("s3://c", "other")]).renewed())):
        with pytest.raises(NeedsChange, match="give other places, such as that of the checkpoint, an entry of their own"):
            obstore_options("s3://b/checkpoints", given)

    own = StorageEntry(prefix="s3://b/checkpoints/", credentials="anonymous")
    assert obstore_options("s3://b/checkpoints", StorageSettings(storage=(*settings.storage, own)))
