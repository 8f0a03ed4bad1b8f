"""The settings: where secrets come from and where they must not go, which entry a URI has, and each library's words for it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import lance
import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url
from pydantic import SecretStr
from pyiceberg.io import load_file_io

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import ManifestInvalid, validate_model
from checkpoint_protocol.places.setting_values import SecretRef, reveal
from checkpoint_protocol.places.settings import RestCatalogSettings, Settings
from checkpoint_protocol.places.storage import (
    StorageEntry,
    StorageSettings,
    iceberg_options,
    lance_options,
    obstore_options,
    pyarrow_options,
)
from tests.support.http_server import serving_by
from tests.support.slow import slow_except

SECRET = "wJalrXUtnFEMI/K7MDENG"
KEYS = {"region": "r", "name": "glue", "access_key_id": "key", "secret_access_key": SECRET}


def entry(prefix: str = "s3://bucket/", **fields: Any) -> StorageEntry:
    return validate_model(StorageEntry, {"prefix": prefix, **fields})


def settings(**fields: Any) -> Settings:
    return validate_model(Settings, fields)


# --- where secrets come from ----------------------------------------------------------------------------------------------


def test_a_secret_may_stand_in_the_file() -> None:
    given = entry(secret_access_key=SECRET).secret_access_key

    assert given is not None
    assert reveal(given, "here") == SECRET


def test_a_secret_may_stand_in_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", SECRET)
    given = entry(secret_access_key={"env": "TEST_SECRET"}).secret_access_key

    assert given is not None
    assert reveal(given, "here") == SECRET


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SECRET", raising=False)

    with pytest.raises(NeedsChange, match="TEST_SECRET is not set") as caught:
        SecretRef(env="TEST_SECRET").read("here")
    assert caught.value.reason == reasons.MANIFEST_INVALID


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_secret_may_stand_in_a_file_whose_line_break_is_dropped(tmp_path: Path, ending: str) -> None:
    (tmp_path / "secret").write_bytes(f" {SECRET} {ending}".encode())

    assert SecretRef(file=str(tmp_path / "secret")).read("here") == f" {SECRET} "


def test_a_secret_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NeedsChange, match="no-such-file"):
        SecretRef(file=str(tmp_path / "no-such-file")).read("here")


def test_a_secret_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(NeedsChange, match=r"secret\.bin"):
        SecretRef(file=str(tmp_path / "secret.bin")).read("here")


@pytest.mark.parametrize("reference", [{}, {"env": "A", "file": "/b"}])
def test_a_reference_to_no_place_or_to_two_is_refused(reference: dict[str, str]) -> None:
    with pytest.raises(ManifestInvalid):
        entry(secret_access_key=reference)


# --- where secrets must not go --------------------------------------------------------------------------------------------


def secret_settings() -> Settings:
    storage = dict.fromkeys(("access_key_id", "secret_access_key", "session_token", "account_key"), SECRET)
    return settings(
        storage=[{"prefix": "s3://b/", **storage}],
        catalogs={
            "rest": {"type": "rest", "uri": "https://catalog", "credential": f"id:{SECRET}", "token": SECRET},
            "sql": {"type": "sql", "uri": f"postgresql+psycopg2://user:{SECRET}@host/db", "warehouse": "s3://b/w"},
        },
    )


def test_no_repr_or_str_shows_a_secret() -> None:
    shown = secret_settings()

    for value in (shown, *shown.storage, *shown.catalogs.values(), shown.for_drivers()):
        assert SECRET not in repr(value)
        assert SECRET not in str(value)
        assert SECRET not in f"{value}"


@pytest.mark.parametrize(
    "document",
    [
        {"storage": [{"prefix": "s3://b/", "secret_access_key": SECRET, "secret_key": SECRET}]},
        {"storage": [{"secret_access_key": SECRET}]},
        {"storage": [{"prefix": "", "secret_access_key": SECRET}]},
        {"storage": [{"prefix": "s3://b/", "secret_access_key": [SECRET]}]},
        {"storage": [{"prefix": "s3://b/", "secret_access_key": {"evn": SECRET}}]},
        {"storage": [{"prefix": "s3://b/", "secret_access_key": {"env": SECRET, "file": SECRET}}]},
        {"storage": {"secret_access_key": SECRET}},
        {"catalogs": {"c": {"type": "sql", "uri": f"postgresql://u:{SECRET}@h/d"}}},
        {"catalogs": {"c": {"type": "sql", "uri": "sqlite://", "warehouse": "/w", "token": SECRET}}},
        {"catalogs": {"c": {"type": "rest", "credential": SECRET}}},
        {"catalogs": {"c": {"type": "hive", "uri": "x", "credential": SECRET}}},
    ],
)
def test_no_message_about_a_wrong_settings_file_shows_a_secret(document: dict[str, Any]) -> None:
    with pytest.raises(ManifestInvalid) as caught:
        validate_model(Settings, document)

    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert SECRET not in "".join(caught.value.problems)
    assert caught.value.__cause__ is None, "a chained pydantic error shows its input in a traceback"


def test_catalog_secrets_are_masked_where_settings_are_printed_as_json() -> None:
    printed = json.loads(secret_settings().model_dump_json())

    assert printed["catalogs"]["rest"]["credential"] == "**********"
    assert printed["catalogs"]["rest"]["token"] == "**********"


def test_drivers_get_the_storage_with_its_secrets_and_no_catalog() -> None:
    handed = secret_settings().for_drivers()
    text = handed.model_dump_json()

    assert type(handed) is StorageSettings
    assert "catalog" not in text
    assert "postgresql" not in text
    assert StorageSettings.model_validate_json(text) == handed
    assert json.loads(text)["storage"][0]["secret_access_key"] == SECRET


def test_a_reference_is_handed_to_drivers_as_a_reference(tmp_path: Path) -> None:
    given = StorageSettings(storage=(StorageEntry(prefix="s3://b/", secret_access_key=SecretRef(file=str(tmp_path / "s"))),))

    assert StorageSettings.model_validate_json(given.model_dump_json()) == given


# --- catalogs -------------------------------------------------------------------------------------------------------------


def test_a_sql_catalog_without_a_warehouse_is_refused() -> None:
    with pytest.raises(ManifestInvalid, match=r"catalogs\.c\.warehouse: this field is required"):
        settings(catalogs={"c": {"type": "sql", "uri": "sqlite://"}})


def test_a_sql_catalog_with_a_token_is_refused() -> None:
    with pytest.raises(ManifestInvalid, match=r"catalogs\.c\.token: unknown field; known here: grants, type, uri, warehouse"):
        settings(catalogs={"c": {"type": "sql", "uri": "sqlite://", "warehouse": "/w", "token": "t"}})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"signing": {"region": "r", "name": "glue"}}, r"catalogs\.c\.signing: .*, or credentials: ambient"),
        ({"signing": KEYS | {"credentials": "ambient"}}, r"catalogs\.c\.signing: .*not both"),
        ({"signing": KEYS, "token": "t"}, r"catalogs\.c: signing, or credential and token are expected, not both"),
        ({"region": "r"}, r"catalogs\.c\.region: unknown field; it is a field of signing"),
    ],
)
def test_a_rest_catalog_whose_requests_nobody_or_two_would_sign_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ManifestInvalid, match=why):
        settings(catalogs={"c": {"type": "rest", "uri": "https://c", **changed}})


def test_a_rest_catalog_needs_no_warehouse() -> None:
    assert settings(catalogs={"c": {"type": "rest", "uri": "https://c"}}).catalogs["c"] == RestCatalogSettings(uri="https://c")


# --- which entry ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/x", "s3://bucket/"),
        ("s3://bucket", "s3://bucket/"),
        ("s3://bucket/", "s3://bucket/"),
        ("s3://bucket/deep/x", "s3://bucket/deep"),
        ("s3://bucket/deep", "s3://bucket/deep"),
        ("s3://bucket/deeper", "s3://bucket/"),
        ("s3://bucket/deep/er/x", "s3://bucket/deep/er/"),
        ("s3://bucket2/x", None),
        ("s3://bucke", None),
        ("gs://bucket/x", "gs://bucket"),
        ("/bucket/x", None),
    ],
)
def test_the_longest_prefix_that_holds_a_uri_wins_and_names_are_never_cut(uri: str, expected: str | None) -> None:
    prefixes = ("s3://bucket/", "s3://bucket/deep", "s3://bucket/deep/er/", "gs://bucket")
    found = StorageSettings(storage=tuple(entry(prefix) for prefix in prefixes)).entry_for(uri)

    assert (found.prefix if found else None) == expected


def test_the_order_of_entries_does_not_matter() -> None:
    entries = (entry("s3://bucket/"), entry("s3://bucket/deep/"))

    for storage in (entries, entries[::-1]):
        found = StorageSettings(storage=storage).entry_for("s3://bucket/deep/x")
        assert found is not None
        assert found.prefix == "s3://bucket/deep/"


# --- each library's words -------------------------------------------------------------------------------------------------

URIS = {"s3": "s3://bucket/x", "gs": "gs://bucket/x", "az": "az://container/x"}
FULL: dict[str, dict[str, str]] = {
    "s3": {
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-central-1",
        "access_key_id": "id",
        "secret_access_key": SECRET,
        "session_token": "session",
    },
    "gs": {"service_account_file": "/key.json", "endpoint": "http://127.0.0.1:9001"},
    "az": {"account_name": "account", "account_key": SECRET, "endpoint": "https://account.blob.example.com"},
}


def full(scheme: str) -> StorageSettings:
    return StorageSettings(storage=(entry(URIS[scheme], **FULL[scheme]),))


@pytest.mark.parametrize(
    ("scheme", "config"),
    [
        (
            "s3",
            {
                "endpoint": "http://127.0.0.1:9000",
                "region": "eu-central-1",
                "access_key_id": "id",
                "secret_access_key": SECRET,
                "session_token": "session",
            },
        ),
        ("gs", {"service_account": "/key.json", "base_url": "http://127.0.0.1:9001"}),
        ("az", {"account_name": "account", "account_key": SECRET, "endpoint": "https://account.blob.example.com"}),
    ],
)
def test_the_words_of_obstore(scheme: str, config: dict[str, str]) -> None:
    assert obstore_options(URIS[scheme], full(scheme))["config"] == config


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        (
            "s3",
            {
                "region": "eu-central-1",
                "access_key": "id",
                "secret_key": SECRET,
                "session_token": "session",
                "endpoint_override": "http://127.0.0.1:9000",
                "scheme": "http",
            },
        ),
        ("gs", {}),
        ("az", {}),
    ],
)
def test_the_words_of_pyarrow(scheme: str, options: dict[str, str]) -> None:
    given = pyarrow_options(URIS[scheme], full(scheme))

    assert {name: value for name, value in given.items() if not name.endswith("timeout")} == options


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        (
            "s3",
            {
                "s3.endpoint": "http://127.0.0.1:9000",
                "s3.region": "eu-central-1",
                "s3.access-key-id": "id",
                "s3.secret-access-key": SECRET,
                "s3.session-token": "session",
            },
        ),
        ("gs", {}),
        ("az", {}),
    ],
)
def test_the_words_of_pyiceberg(scheme: str, options: dict[str, str]) -> None:
    given = iceberg_options(URIS[scheme], full(scheme))

    assert {name: value for name, value in given.items() if not name.endswith("timeout")} == options


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        (
            "s3",
            {
                "aws_endpoint": "http://127.0.0.1:9000",
                "aws_region": "eu-central-1",
                "aws_access_key_id": "id",
                "aws_secret_access_key": SECRET,
                "aws_session_token": "session",
                "allow_http": "true",
            },
        ),
        ("gs", {"service_account": "/key.json", "base_url": "http://127.0.0.1:9001", "allow_http": "true"}),
        ("az", {"account_name": "account", "account_key": SECRET, "endpoint": "https://account.blob.example.com"}),
    ],
)
def test_the_words_of_lance(scheme: str, options: dict[str, str]) -> None:
    given = lance_options(URIS[scheme], full(scheme))

    assert {name: value for name, value in given.items() if not name.endswith("timeout")} == options


def test_lance_options_are_texts_only() -> None:
    for scheme in URIS:
        assert all(isinstance(value, str) for value in lance_options(URIS[scheme], full(scheme)).values())
    for scheme in ("s3", "az"):
        assert all(isinstance(value, str) for value in iceberg_options(URIS[scheme], full(scheme)).values())


# --- nothing of the process goes with keys that are given --------------------------------------------------------------------

#: Each is read by obstore, Lance or an SDK; for which scheme it is meant.
AMBIENT = {
    "s3": ("AWS_SESSION_TOKEN", "AWS_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "SESSION_TOKEN", "token"),
    "az": ("AZURE_STORAGE_TOKEN", "AZURE_STORAGE_SAS_TOKEN", "BEARER_TOKEN", "token"),
}
MEANT = [(scheme, name) for scheme, names in AMBIENT.items() for name in names]
EACH = sorted(itertools.product(AMBIENT, {name for _, name in MEANT}))


class Listener(BaseHTTPRequestHandler):
    """Answers that there is nothing, and keeps what it was sent."""

    heads: ClassVar[list[str]]

    def do_GET(self) -> None:
        self.heads.append(f"{self.path} {self.headers}")
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    heads: list[str] = []
    with serving_by(type("Own", (Listener,), {"heads": heads})) as url:
        yield url, heads


@pytest.mark.parametrize(("scheme", "variable"), slow_except(EACH, *MEANT))
def test_a_variable_of_this_process_goes_nowhere_beside_keys_that_are_given(
    scheme: str, variable: str, listener: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, heads = listener
    monkeypatch.setenv(variable, "AMBIENT-7c1f")
    own = {"s3": {"access_key_id": "own", "secret_access_key": SECRET}, "az": {"account_name": "a", "account_key": "b3du"}}
    given = StorageSettings(storage=(entry(URIS[scheme], endpoint=endpoint, **own[scheme]),))

    options = obstore_options(URIS[scheme], given)
    assert obstore_exists(from_url(URIS[scheme], **options)) is False
    with suppress(NeedsChange, ValueError, OSError):
        lance.dataset(
            URIS[scheme], storage_options={**lance_options(URIS[scheme], given), "allow_http": "true", "client_max_retries": "0"}
        )
    if scheme == "s3":
        file_io = load_file_io(dict(iceberg_options(URIS[scheme], given)), URIS[scheme])
        assert not file_io.new_input("s3://bucket/x/y").exists()

    assert heads
    assert "AMBIENT-7c1f" not in "".join(heads)
    if scheme == "s3":
        assert "Credential=own/" in heads[0]


def obstore_exists(store: ObjectStore) -> bool:
    try:
        obstore.head(store, "y")
    except FileNotFoundError:
        return False
    return True


def test_a_token_that_lance_would_send_with_other_keys_is_named_and_goes_once_it_is_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = StorageSettings(storage=(entry(access_key_id="own", secret_access_key=SECRET),))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "AMBIENT-7c1f")

    with pytest.raises(NeedsChange, match="unset AWS_SESSION_TOKEN for this process") as caught:
        lance_options("s3://bucket/x", given)

    assert "AMBIENT-7c1f" not in caught.value.message
    ambient = StorageSettings(storage=(entry(credentials="ambient"),))
    assert "aws_access_key_id" not in lance_options("s3://bucket/x", ambient)
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    assert "aws_session_token" not in lance_options("s3://bucket/x", given)


@pytest.mark.parametrize(
    ("uri", "fields", "missing"),
    [
        ("s3://bucket/x", {"access_key_id": "id"}, "secret_access_key"),
        ("s3://bucket/x", {"secret_access_key": SECRET}, "access_key_id"),
        ("s3://bucket/x", {"session_token": "t"}, "access_key_id and secret_access_key"),
        ("s3a://bucket/x", {"account_key": SECRET}, "access_key_id and secret_access_key"),
        ("az://container/x", {"access_key_id": "id", "secret_access_key": SECRET}, "account_key and account_name"),
        ("az://container/x", {"account_key": SECRET}, "account_name"),
        ("gs://bucket/x", {"account_key": SECRET}, "service_account_file"),
    ],
)
def test_keys_that_a_library_would_complete_from_this_machine_are_refused(uri: str, fields: dict[str, str], missing: str) -> None:
    given = StorageSettings(storage=(entry(uri, **fields),))

    for translate in (obstore_options, pyarrow_options, iceberg_options, lance_options):
        with pytest.raises(NeedsChange, match=f"lacks {missing}: give it keys"):
            translate(uri, given)

    whole = StorageSettings(storage=(entry(uri, credentials="anonymous", account_name="account"),))
    assert "lacks" not in str(obstore_options(uri, whole))


def test_plain_http_is_allowed_only_where_the_endpoint_says_so() -> None:
    secure = StorageSettings(storage=(entry(endpoint="https://store", credentials="ambient"),))

    assert "allow_http" not in obstore_options("s3://bucket/x", secure)["client_options"]
    assert "allow_http" not in lance_options("s3://bucket/x", secure)
    assert pyarrow_options("s3://bucket/x", secure)["scheme"] == "https"
    assert obstore_options("s3://bucket/x", full("s3"))["client_options"]["allow_http"] is True


TRANSLATIONS = [obstore_options, pyarrow_options, iceberg_options, lance_options]


@pytest.mark.parametrize("translate", TRANSLATIONS)
@pytest.mark.parametrize("uri", ["s3://bucket/x", "s3a://bucket/x", "gs://bucket/x", "az://container/x", "abfss://container/x"])
def test_a_bucket_that_no_entry_covers_is_refused_with_how_to_add_one(translate: Any, uri: str) -> None:
    """Else the library would ask for this machine's identity, and hand it to whatever store a manifest names."""
    with pytest.raises(NeedsChange) as refused:
        translate(uri, StorageSettings(storage=(entry("s3://other/"),)))

    assert refused.value.reason == reasons.MANIFEST_INVALID
    for part in (uri, "no storage entry", "credentials: ambient", "anonymous"):
        assert part in refused.value.message


@pytest.mark.parametrize("translate", TRANSLATIONS)
@pytest.mark.parametrize("scheme", URIS)
def test_an_entry_without_keys_and_without_credentials_is_refused(translate: Any, scheme: str) -> None:
    with pytest.raises(NeedsChange, match="neither keys nor") as refused:
        translate(URIS[scheme], StorageSettings(storage=(entry(URIS[scheme], region="eu-central-1"),)))

    assert refused.value.reason == reasons.MANIFEST_INVALID


@pytest.mark.parametrize("translate", TRANSLATIONS)
@pytest.mark.parametrize("place", ["/in/a.parquet", "file:///in/a.parquet", "relative", "", "a-name-of-a-warehouse"])
def test_what_lies_on_this_machine_needs_no_entry(translate: Any, place: str) -> None:
    options = translate(place, StorageSettings())

    assert not {"config", "access_key", "anonymous"} & set(options)


@pytest.mark.parametrize("alias", ["s3a://bucket/x", "s3://bucket/x"])
@pytest.mark.parametrize("prefix", ["s3a://bucket/", "s3://bucket"])
def test_an_entry_covers_its_bucket_by_any_name_of_the_scheme(alias: str, prefix: str) -> None:
    given = StorageSettings(storage=(entry(prefix, access_key_id="id", secret_access_key=SECRET),))

    assert lance_options(alias, given)["aws_access_key_id"] == "id"


IN_ACME = "abfss://lake@acme.dfs.core.windows.net/x"


@pytest.mark.parametrize(
    ("uri", "prefix"),
    [(IN_ACME, "az://lake/"), (IN_ACME, "abfss://lake@acme.blob.core.windows.net/"), ("az://lake/x", IN_ACME)],
)
def test_an_entry_covers_a_container_of_its_account_by_any_name(uri: str, prefix: str) -> None:
    given = StorageSettings(storage=(entry(prefix, account_name="acme", account_key=SECRET),))

    assert obstore_options(uri, given)["config"]["account_name"] == "acme"


def test_the_account_of_a_uri_is_nobody_elses() -> None:
    theirs = IN_ACME.replace("acme", "other")

    assert StorageSettings(storage=(entry("az://lake/", account_name="acme"),)).entry_for(theirs) is None
    assert (
        obstore_options(IN_ACME, StorageSettings(storage=(entry(IN_ACME, account_key=SECRET),)))["config"]["account_key"]
        == SECRET
    )
    for translate in TRANSLATIONS:
        with pytest.raises(NeedsChange, match=r"is in the account other, .* says account_name: acme; correct one"):
            translate(theirs, StorageSettings(storage=(entry(theirs, account_name="acme", account_key=SECRET),)))
        translate(theirs, StorageSettings(storage=(entry(theirs, account_name="other", account_key=SECRET),)))


def without_keys(credentials: str, scheme: str = "s3") -> StorageSettings:
    account = {"account_name": "account"} if scheme == "az" else {}
    return StorageSettings(storage=(entry(URIS[scheme], credentials=credentials, endpoint="http://127.0.0.1:9", **account),))


def test_ambient_credentials_leave_each_library_to_find_them() -> None:
    given, uri = without_keys("ambient"), URIS["s3"]

    assert obstore_options(uri, given)["config"] == {"endpoint": "http://127.0.0.1:9", "region": "us-east-1"}
    assert not {"anonymous", "access_key"} & pyarrow_options(uri, given).keys()
    assert not {"s3.anonymous", "s3.access-key-id"} & iceberg_options(uri, given).keys()
    assert not {"aws_skip_signature", "aws_access_key_id"} & lance_options(uri, given).keys()


def test_a_public_bucket_is_read_without_signing_and_without_asking_anybody_for_an_identity() -> None:
    given, uri = without_keys("anonymous"), URIS["s3"]

    assert obstore_options(uri, given)["config"]["skip_signature"] is True
    assert pyarrow_options(uri, given)["anonymous"] is True
    assert iceberg_options(uri, given)["s3.anonymous"] == "true"
    assert lance_options(uri, given)["aws_skip_signature"] == "true"


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_public_buckets_of_other_clouds_are_read_without_signing(scheme: str) -> None:
    given, uri = without_keys("anonymous", scheme), URIS[scheme]

    assert obstore_options(uri, given)["config"]["skip_signature"] is True


@pytest.mark.parametrize("translate", [obstore_options, lance_options])
@pytest.mark.parametrize("variable", ["GOOGLE_BEARER_TOKEN", "BEARER_TOKEN"])
def test_a_token_that_would_go_before_a_key_file_of_gcs_is_named(
    translate: Any, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "AMBIENT-7c1f")

    with pytest.raises(NeedsChange, match=f"unset {variable} for this process") as caught:
        translate(URIS["gs"], full("gs"))

    assert "AMBIENT-7c1f" not in caught.value.message
    assert translate(URIS["gs"], without_keys("ambient", "gs"))


@pytest.mark.parametrize("file", [None, "/not-there"])
def test_puts_into_a_public_bucket_of_gcs_ask_nobody_for_an_identity(
    file: str | None, listener: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """object_store signs puts even where it is told not to: with what the variables name, or the identity of this machine."""
    endpoint, heads = listener
    if file is not None:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "AMBIENT-7c1f")
    given = StorageSettings(storage=(entry(URIS["gs"], endpoint=endpoint, credentials="anonymous"),))

    with pytest.raises(BaseError, match="501"):
        obstore.put(from_url(URIS["gs"], **obstore_options(URIS["gs"], given)), "y", b"1", use_multipart=False)
    with pytest.raises((ValueError, OSError)):
        lance.dataset(URIS["gs"], storage_options={**lance_options(URIS["gs"], given), "client_max_retries": "0"})

    assert heads
    assert "AMBIENT-7c1f" not in "".join(heads)


@pytest.mark.parametrize("credentials", ["ambient", "anonymous"])
def test_keys_beside_other_credentials_are_refused(credentials: str) -> None:
    with pytest.raises(ManifestInvalid, match="keys do not go with it"):
        entry(credentials=credentials, access_key_id="id")


def test_every_request_of_the_protocols_store_ends_in_a_bounded_time() -> None:
    for given in (full("s3"), without_keys("ambient")):
        options = obstore_options("s3://bucket/x", given)
        assert options["retry_config"]["retry_timeout"].total_seconds() <= 30
        assert options["client_options"]["connect_timeout"] == "5s"
        assert options["client_options"]["timeout"] == "60s"


@pytest.mark.parametrize("translate", [obstore_options, pyarrow_options, iceberg_options, lance_options])
def test_a_secret_that_cannot_be_had_is_told_by_name_at_its_first_use(translate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    given = StorageSettings(storage=(entry(access_key_id="id", secret_access_key={"env": "NO_SUCH_SECRET"}),))

    with pytest.raises(NeedsChange, match="NO_SUCH_SECRET"):
        translate("s3://bucket/x", given)


def test_secrets_are_compared_by_their_text() -> None:
    assert entry(secret_access_key=SECRET).secret_access_key == SecretStr(SECRET)
