"""What a condition, the settings and an archive of code are refused for: whoever does what is said goes on."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from checkpoint_formats.kafka.cluster import client_properties
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.archives import ArchiveRefused
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.where import check_where, parse_where
from checkpoint_protocol.places.outputs import find_file_in, find_path_into, refuse
from checkpoint_protocol.places.setting_values import SecretRef
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.places.storage import disk_path, entry_of
from checkpoint_protocol.places.uris import why_not_parsed
from checkpoint_protocol.records import Output

#: The type of the column a, a wrong condition, what is said of it, and the condition as it says.
CONDITIONS: Final = [
    ("int64", "b = 1", "there is no column 'b' (there are a); correct it", "a = 1"),
    ("int64", "a = '1'", "; write a number without quotes, and without a point", "a = 1"),
    ("double", "a = '1.5'", "; write a number without quotes", "a = 1.5"),
    ("decimal128(5, 2)", "a = '1.5'", "; write a number without quotes", "a = 1.5"),
    ("string", "a = 1", "; write a text in single quotes", "a = '1'"),
    ("bool", "a = 'true'", "; write true or false", "a = true or a = false"),
    ("date32[day]", "a = 20260131", "; write a text in single quotes, as in ISO 8601", "a = '2026-01-31'"),
    ("date32[day]", "a = '31.1.2026'", "is a date, and '31.1.2026' is none; write it as '2026-01-31'", "a = '2026-01-31'"),
    ("timestamp[us]", "a = 2026", "; write a text in single quotes, as in ISO 8601", "a = '2026-01-31T12:00:00'"),
    ("timestamp[us]", "a = 'noon'", "; write it as '2026-01-31T12:00:00'", "a = '2026-01-31T12:00:00'"),
    (
        "timestamp[us, tz=UTC]",
        "a = '2026-01-31T12:00:00'",
        "; write it as '2026-01-31T12:00:00+00:00'",
        "a = '2026-01-31T12:00:00+00:00'",
    ),
]


@pytest.mark.parametrize(("kind", "wrong", "says", "corrected"), CONDITIONS)
def test_a_condition_that_is_written_as_the_message_says_is_taken(kind: str, wrong: str, says: str, corrected: str) -> None:
    with pytest.raises(NeedsChange) as refused:
        check_where(parse_where(wrong), {"a": kind})
    assert says in refused.value.message

    check_where(parse_where(corrected), {"a": kind})


# --- the settings ---------------------------------------------------------------------------------------------------------

_VARIABLE: Final = "CHECKPOINTED_WRITE_TEST_OF_WAYS_OUT"


@pytest.fixture
def variable() -> Iterator[str]:
    yield _VARIABLE
    os.environ.pop(_VARIABLE, None)


def settings(**sections: Any) -> Settings:
    return Settings.model_validate_json(json.dumps(sections))


def catalog(**secret: str) -> Settings:
    return settings(catalogs={"lake": {"type": "rest", "uri": "http://lake", "token": secret}})


def token_of(read: Settings) -> str:
    token = getattr(read.catalog("lake"), "token", None)
    assert isinstance(token, SecretRef)
    return token.read("catalogs.lake.token")


def test_a_variable_that_is_set_or_named_right_is_read_as_the_message_says(variable: str) -> None:
    with pytest.raises(NeedsChange, match=r"is not set; set it where this runs, or correct its name: catalogs\.lake\.token"):
        token_of(catalog(env=variable))

    os.environ[variable] = "geheim"
    assert token_of(catalog(env=variable)) == "geheim"
    with pytest.raises(NeedsChange, match="is not set"):
        token_of(catalog(env=variable + "_"))


def test_a_secret_file_that_is_put_there_is_read_as_the_message_says(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(NeedsChange, match=r"put it there, or correct its path: catalogs\.lake\.token"):
        token_of(catalog(file=str(path)))

    path.write_text("geheim\n")
    assert token_of(catalog(file=str(path))) == "geheim"


def use_catalog(read: Settings) -> object:
    return read.catalog("lake")


def use_namespace(read: Settings) -> object:
    return read.namespace("lake")


def use_bucket(read: Settings) -> object:
    return entry_of("s3://in/a", read)


def use_kafka(*servers: str) -> Callable[[Settings], object]:
    return lambda read: client_properties(servers, read)


_LAKE: Final = {"type": "rest", "uri": "http://lake"}
_KEYS: Final = {"access_key_id": "a", "secret_access_key": "b"}
_BROKER: Final = {"bootstrap_servers": ["a:1"]}
_SIGNED_IN: Final = {"sasl_mechanism": "PLAIN", "username": "u", "password": "p"}
Sections = Mapping[str, Any]

#: What the settings are used for, the wrong ones, what is said of them, and the settings after each thing that it says.
SETTINGS: Final[list[tuple[Callable[[Settings], object], Sections, str, list[Sections]]]] = [
    (use_catalog, {}, "there is no catalog 'lake' (there are: none); add it to", [{"catalogs": {"lake": _LAKE}}]),
    (
        use_namespace,
        {},
        "there is no Lance namespace 'lake' (there are: none); add it to",
        [{"namespaces": {"lake": {"type": "directory", "root": root}}} for root in ("s3://bucket/tables", "tables")],
    ),
    (
        use_bucket,
        {},
        "no storage entry covers s3://in/a: add one to",
        [
            {"storage": [{"prefix": "s3://in/", "credentials": "ambient"}]},
            {"storage": [{"prefix": "s3://in/", "credentials": "anonymous"}]},
            {"storage": [{"prefix": "s3://in/", **_KEYS}]},
        ],
    ),
    (
        use_bucket,
        {"storage": [{"prefix": "s3://in/"}]},
        "has neither keys nor credentials: give it keys, or credentials: ambient",
        [{"storage": [{"prefix": "s3://in/", "credentials": "ambient"}]}, {"storage": [{"prefix": "s3://in/", **_KEYS}]}],
    ),
    (
        use_bucket,
        {"storage": [{"prefix": "s3://in/", "credentials": "ambient", **_KEYS}]},
        "credentials: ambient: keys do not go with it; leave one of them out",
        [{"storage": [{"prefix": "s3://in/", "credentials": "ambient"}]}, {"storage": [{"prefix": "s3://in/", **_KEYS}]}],
    ),
    (
        use_kafka("a:1"),
        {"kafka": [{**_BROKER, "security_protocol": "SSL", **_SIGNED_IN}]},
        "sasl_mechanism, username and password go with SASL_PLAINTEXT and SASL_SSL; say one of them",
        [
            {"kafka": [{**_BROKER, "security_protocol": "SASL_PLAINTEXT", **_SIGNED_IN}]},
            {"kafka": [{**_BROKER, "security_protocol": "SASL_SSL", **_SIGNED_IN}]},
        ],
    ),
    (
        use_kafka("a:1"),
        {"kafka": [{**_BROKER, "ca_file": "/ca.crt"}]},
        "ca_file, certificate_file and key_file go with SSL and SASL_SSL; say one of them",
        [
            {"kafka": [{**_BROKER, "ca_file": "/ca.crt", "security_protocol": "SSL"}]},
            {"kafka": [{**_BROKER, "ca_file": "/ca.crt", "security_protocol": "SASL_SSL", **_SIGNED_IN}]},
        ],
    ),
    (
        use_kafka("a:1", "b:1"),
        {"kafka": [_BROKER]},
        "has the others, and credentials go to no other servers; leave it out, or add it there",
        [{"kafka": [{"bootstrap_servers": ["a:1", "b:1"]}]}],
    ),
]


@pytest.mark.parametrize(("use", "wrong", "says", "ways"), SETTINGS, ids=[says[:40] for _, _, says, _ in SETTINGS])
def test_settings_that_are_corrected_as_the_message_says_are_used(
    use: Callable[[Settings], object], wrong: Sections, says: str, ways: list[Sections]
) -> None:
    with pytest.raises((NeedsChange, ValidationError)) as refused:
        use(settings(**wrong))
    assert says in str(refused.value)

    for way in ways:
        use(settings(**way))


def test_a_server_that_is_left_out_or_a_uri_of_a_bucket_is_used_as_the_message_says() -> None:
    read = settings(kafka=[_BROKER], storage=[{"prefix": "s3://in/", **_KEYS}])
    with pytest.raises(NeedsChange, match="leave it out"):
        client_properties(("a:1", "b:1"), read)
    assert client_properties(("a:1",), read)["bootstrap.servers"] == "a:1"

    of_a_tenant = read.in_buckets_only()
    with pytest.raises(NeedsChange, match=r"nothing on disk is opened here; use an object store \(s3://, gs://, az://\)"):
        disk_path("/in/a", of_a_tenant)
    assert [disk_path(uri, of_a_tenant) for uri in ("s3://in/a", "gs://in/a", "az://in/a")] == [None, None, None]


# --- places and archives --------------------------------------------------------------------------------------------------


def test_a_source_in_a_folder_of_its_own_is_read_as_the_message_says(tmp_path: Path) -> None:
    output = Output(title="the data of the sink's table", uri=str(tmp_path / "lake" / "table"), samples=("a.parquet",))
    with pytest.raises(NeedsChange, match="let each have a folder of its own"):
        refuse(find_path_into([output], [str(tmp_path / "lake")]))

    refuse(find_path_into([output], [str(tmp_path / "in")]))
    refuse(find_file_in([output], [str(tmp_path / "in" / "a.csv")]))


@pytest.mark.parametrize("name", ["a?b", "a#b", "a\t"])
def test_a_name_without_what_is_no_part_of_one_is_opened(name: str) -> None:
    assert (why_not_parsed(f"s3://bucket/{name}/") or "").endswith("is not taken for part of a name; use a name without it")

    assert why_not_parsed("s3://bucket/a-b/") is None


def archive(kind: int = stat.S_IFREG, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    entry = zipfile.ZipInfo("a.py")
    entry.external_attr = (kind | 0o644) << 16
    entry.compress_type = method
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr(entry, "x = 1")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("wrong", "says", "corrected"),
    [
        ({"kind": stat.S_IFLNK}, "'a.py' in it is a link or a device; put the file itself in", {"kind": stat.S_IFREG}),
        (
            {"method": zipfile.ZIP_LZMA},
            "'a.py' in it is compressed in a way that is not known here; use deflate",
            {"method": zipfile.ZIP_DEFLATED},
        ),
    ],
)
def test_an_archive_that_is_made_as_the_message_says_is_unpacked(
    tmp_path: Path, wrong: dict[str, int], says: str, corrected: dict[str, int]
) -> None:
    with pytest.raises(ArchiveRefused) as refused:
        archives.unpack(archive(**wrong), tmp_path)
    assert says in str(refused.value)

    archives.unpack(archive(**corrected), tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1"
