"""Input files on S3, as on disk: found, looked at, read in parts, and read by every reader."""

from __future__ import annotations

import gzip
import io
import json
import secrets
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from checkpoint_formats.files import buckets
from checkpoint_formats.files.buckets import Buckets
from checkpoint_formats.files.source_files import SourceFiles
from checkpoint_formats.rows import parquet_rows
from checkpoint_formats.rows.batch_sizing import BatchSizing
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.places.patterns import Tenant
from checkpoint_protocol.places.source_paths import locate
from checkpoint_protocol.places.storage import StorageEntry, StorageSettings
from checkpoint_protocol.rows.positions import Range
from devtools.s3_server import S3Server
from tests.support.reading import check_exactly_once, chunks_of, open_reader, read_whole, rows_of, whole
from tests.support.slow import slow_except

NAMES = ("a b/é#x%20y.csv", "a b/plain+&=?.csv", "q~/z|.csv", "[x]{y}.csv", "data/_SUCCESS", "data/day=1/x.csv", "data/empty.csv")
#: Of a column whose name begins with _, and of another program's.
UNDERSCORED = ("hive/_year=2025/x.csv", "hive/_year=2025/_SUCCESS", "hive/_temporary/x.csv", "hive/.year=2025/x.csv")


class Bucket:
    """A bucket of its own for a test."""

    def __init__(self, server: S3Server) -> None:
        self.name = server.make_bucket(f"source-{secrets.token_hex(6)}")
        self.store = server.store(self.name)
        self.server = server

    def settings(self, **changes: Any) -> StorageSettings:
        entry = {
            "prefix": f"s3://{self.name}",
            "endpoint": self.server.endpoint,
            "region": self.server.region,
            "access_key_id": self.server.access_key,
            "secret_access_key": self.server.secret_key,
        }
        return StorageSettings(storage=(StorageEntry.model_validate(entry | changes),))

    def put(self, key: str, data: bytes) -> str:
        obstore.put(self.store, key, data)
        return f"s3://{self.name}/{key}"

    def found(self, *paths: str) -> list[str]:
        files = SourceFiles(self.settings()).expand([f"s3://{self.name}/{path}" for path in paths])
        return [file.path.removeprefix(f"s3://{self.name}/") for file in files]


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:
    return Bucket(s3_server)


def test_names_of_all_kinds_are_found_looked_at_and_read(bucket: Bucket) -> None:
    files = SourceFiles(bucket.settings())
    for name in NAMES:
        bucket.put(name, b"" if "empty" in name else name.encode())
    found = files.expand([f"s3://{bucket.name}/"])
    assert [file.path for file in found] == sorted(f"s3://{bucket.name}/{name}" for name in NAMES if "_SUCCESS" not in name)
    for file in found:
        content = file.path.removeprefix(f"s3://{bucket.name}/").encode()
        assert files.head(file.path) == file, "a listing and a look give the same etag and size"
        assert files.expand([file.path]) == (file,) or "?" in file.path
        if file.size_bytes:
            assert files.read_range(file.path, 1, 3) == content[1:3]
            assert files.read_range(file.path, len(content) - 1, len(content) + 9) == content[-1:]
            with files.open_arrow(file.path) as opened:
                assert opened.read() == content


def test_folders_and_patterns(bucket: Bucket) -> None:
    for name in (*NAMES, "database/x.csv"):
        bucket.put(name, b"x")
    assert bucket.found("data") == bucket.found("data/") == ["data/day=1/x.csv", "data/empty.csv"]
    assert bucket.found("data/*.csv") == ["data/empty.csv"]
    assert bucket.found("data/**/x.csv", "data/day=*", "*/x.csv") == ["data/day=1/x.csv", "database/x.csv"]
    assert bucket.found("data/_SUCCESS") == ["data/_SUCCESS"]


@pytest.mark.parametrize("path", ["hive", "hive/", "hive/*", "hive/**", "hive/**/x.csv"])
def test_a_folder_of_a_column_is_not_hidden_by_the_first_character_of_its_name(bucket: Bucket, path: str) -> None:
    for name in UNDERSCORED:
        bucket.put(name, b"x")
    assert bucket.found(path) == ["hive/_year=2025/x.csv"]


def test_folder_markers_are_no_files(bucket: Bucket) -> None:
    bucket.put("data/x.csv", b"x")
    options = {"endpoint_override": bucket.server.endpoint, "scheme": "http", "region": bucket.server.region}
    filesystem = pa.fs.S3FileSystem(access_key=bucket.server.access_key, secret_key=bucket.server.secret_key, **options)
    filesystem.create_dir(f"{bucket.name}/data/marked")
    assert {meta["path"] for listed in obstore.list(bucket.store) for meta in listed} >= {"data/marked"}, "no marker is there"
    assert bucket.found("data") == ["data/x.csv"]


@pytest.mark.parametrize("path", ["nothing.csv", "nothing/", "no*", "only_hidden"])
def test_path_that_means_no_file_is_named(bucket: Bucket, path: str) -> None:
    bucket.put("only_hidden/_SUCCESS", b"x")
    with pytest.raises(NeedsChange) as missing:
        bucket.found(path)
    assert missing.value.reason == reasons.SOURCE_MISSING
    assert path in missing.value.message


def test_entry_with_the_longest_prefix_is_used(bucket: Bucket) -> None:
    path = bucket.put("data/x.csv", b"x")
    outside = bucket.put("outside.csv", b"x")
    wrong = bucket.settings(secret_access_key="wrong").storage
    right = bucket.settings(prefix=f"s3://{bucket.name}/data").storage
    files = SourceFiles(StorageSettings(storage=wrong + right))
    for _ in range(2):
        with pytest.raises(NeedsChange):
            files.head(outside)
        with pytest.raises(NeedsChange):
            files.open_arrow(outside)
        assert [file.path for file in files.expand([path, f"{path[:-6]}/*"])] == [path]
        with files.open_arrow(path) as opened:
            assert opened.read() == b"x"


def test_refused_credentials_and_missing_buckets_need_a_change(bucket: Bucket) -> None:
    path = bucket.put("x.csv", b"x")
    files = SourceFiles(bucket.settings(secret_access_key="wrong"))
    for use in (
        lambda: files.head(path),
        lambda: files.expand([f"s3://{bucket.name}/"]),
        lambda: files.read_range(path, 0, 1),
        lambda: files.open_arrow(path).read(),
    ):
        with pytest.raises(NeedsChange) as refused:
            use()
        assert refused.value.reason == reasons.CREDENTIALS_REFUSED
    nowhere = StorageSettings(storage=bucket.settings(prefix="s3://nowhere-at-all").storage)
    with pytest.raises(CheckpointError, match="nowhere-at-all"):
        SourceFiles(nowhere).expand(["s3://nowhere-at-all/x/*"])


def test_an_object_under_two_schemes_is_one_file(bucket: Bucket) -> None:
    path = bucket.put("in/x.csv", b"a\n1\n")
    by_another = path.replace("s3://", "s3a://")
    settings = StorageSettings(storage=bucket.settings().storage + bucket.settings(prefix=f"s3a://{bucket.name}/").storage)
    files = SourceFiles(settings)
    assert [file.path for file in files.expand([f"s3a://{bucket.name}/in", path, f"s3://{bucket.name}/*/*.csv"])] == [path]
    assert files.identify(path) == files.identify(by_another)


def test_replaced_and_removed_objects_are_noticed(bucket: Bucket) -> None:
    path = bucket.put("x.csv", b"a\n1\n")
    reader = open_reader("csv", bucket.settings())
    (file,), schema = reader.describe([path])
    reader.check_unchanged(file)
    bucket.put("x.csv", b"a\n2\n")
    with pytest.raises(NeedsChange) as noticed:
        chunks_of(reader, file, whole(file), schema)
    assert noticed.value.reason == reasons.SOURCE_CHANGED
    obstore.delete(bucket.store, "x.csv")
    files = SourceFiles(bucket.settings())
    for use in (
        lambda: reader.check_unchanged(file),
        lambda: files.read_range(path, 0, 1),
        lambda: files.open_arrow(path),
    ):
        with pytest.raises(NeedsChange) as noticed:
            use()
        assert noticed.value.reason == reasons.SOURCE_CHANGED


def test_object_that_became_shorter_is_noticed(bucket: Bucket) -> None:
    path = bucket.put("x.csv", b"abc")
    with pytest.raises(NeedsChange) as noticed:
        SourceFiles(bucket.settings()).read_range(path, 5, 9)
    assert noticed.value.reason == reasons.SOURCE_CHANGED


def table_of(count: int) -> pa.Table:
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    return pa.table({"n": range(count), "text": [f"é{number}" for number in range(count)]}, schema)


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("compression", "at"), [("none", 4), ("snappy", 80), ("zstd", 80), ("lz4", 80), ("brotli", 80), ("gzip", 80)]
)
def test_an_object_of_spoiled_parquet_is_unreadable_and_not_the_networks_fault(bucket: Bucket, compression: str, at: int) -> None:
    data = parquet_bytes(table_of(5_000), compression=compression, use_dictionary=False)
    path = bucket.put("x.parquet", data[:at] + b"\xff" * 500 + data[at + 500 :])
    reader = open_reader("parquet", bucket.settings())
    (file,), schema = reader.describe([path])

    with pytest.raises(NeedsChange) as refused:
        list(reader.read(file, whole(file), schema, BatchSizing(interval_s=60.0)))

    assert refused.value.reason == reasons.SOURCE_UNREADABLE


@pytest.mark.parametrize("fetch_bytes", [0, 128 << 20])
def test_parquet_rows_come_once(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, fetch_bytes: int) -> None:
    """Row groups fetched at once, and streamed because they are large."""
    monkeypatch.setattr(parquet_rows, "_FETCH_BYTES", fetch_bytes)
    path = bucket.put("é #%20.parquet", parquet_bytes(table_of(5_000), row_group_size=700))
    reader = open_reader("parquet", bucket.settings())
    (file,), schema = reader.describe([path])
    check_exactly_once(reader, file, schema, [1, 699, 2_500], [0.01, 1.0], table_of(5_000).to_pylist())


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("gzipped", [False, True])
def test_text_rows_come_once(bucket: Bucket, format: str, gzipped: bool) -> None:
    rows = [{"n": number, "text": f"é{number}"} for number in range(20_000)]
    if format == "csv":
        text = "n,text\n" + "".join(f"{row['n']},{row['text']}\n" for row in rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    path = bucket.put(f"é #%20.{format}{'.gz' if gzipped else ''}", gzip.compress(text.encode()) if gzipped else text.encode())
    reader = open_reader(format, bucket.settings())
    (file,), schema = reader.describe([path])
    check_exactly_once(reader, file, schema, [1, 100_000, 200_001], [0.001, 1.0], rows)


def test_whole_files_come_once_with_what_the_store_tells_of_them(bucket: Bucket) -> None:
    contents = {"a/é #%20.png": b"\x89PNG\0", "b/empty": b"", "c.pdf": b"%PDF" * 1_000}
    for key, content in contents.items():
        bucket.put(key, content)
    told = {meta["path"]: meta for listed in obstore.list(bucket.store) for meta in listed}
    reader = open_reader("binary", bucket.settings())
    files, schema = reader.describe([f"s3://{bucket.name}/"])

    rows = read_whole(reader, files, schema)

    assert {row["path"].removeprefix(f"s3://{bucket.name}/"): row["content"] for row in rows} == contents
    for row, key in zip(rows, sorted(contents), strict=True):
        assert (row["size"], row["modified"]) == (len(contents[key]), told[key]["last_modified"])
        assert row["etag"] == (told[key]["e_tag"] or "").strip('"')


def test_a_whole_file_that_was_replaced_or_removed_is_noticed_when_it_is_opened(bucket: Bucket) -> None:
    path = bucket.put("x.png", b"1")
    reader = open_reader("binary", bucket.settings(), columns=["path"])
    (file,), schema = reader.describe([path])
    bucket.put("x.png", b"2")
    for _ in range(2):
        with pytest.raises(NeedsChange) as noticed:
            chunks_of(reader, file, whole(file), schema)
        assert noticed.value.reason == reasons.SOURCE_CHANGED
        obstore.delete(bucket.store, "x.png")


def test_credentials_that_are_refused_altogether_fail_no_row_of_whole_files(bucket: Bucket) -> None:
    path = bucket.put("x.png", b"1")
    (file,), schema = open_reader("binary", bucket.settings()).describe([path])
    reader = open_reader("binary", bucket.settings(secret_access_key="wrong"))
    with pytest.raises(NeedsChange) as refused:
        chunks_of(reader, file, whole(file), schema)
    assert refused.value.reason == reasons.CREDENTIALS_REFUSED


def test_many_files_are_described_in_order(bucket: Bucket) -> None:
    for number in range(40):
        bucket.put(f"data/{number:03}.parquet", parquet_bytes(table_of(number)))
    reader = open_reader("parquet", bucket.settings())
    files, schema = reader.describe([f"s3://{bucket.name}/data"])
    assert [file.end for file in files] == list(range(40))
    assert len(read_whole(reader, files, schema)) == sum(range(40))


def test_files_for_pyarrow_by_obstore_where_pyarrow_has_no_client(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for GCS and Azure, which have no server here."""
    monkeypatch.setattr(Buckets, "open_arrow", Buckets.open_arrow_by_obstore)
    for name, data in (
        ("x.parquet", parquet_bytes(table_of(5_000), row_group_size=700)),
        ("x.csv.gz", gzip.compress(b"n\n" + b"".join(b"%d\n" % number for number in range(5_000)))),
    ):
        path = bucket.put(name, data)
        reader = open_reader(name.split(".")[1], bucket.settings())
        (file,), schema = reader.describe([path])
        piece = Range(file=0, start=650, end=file.end)
        assert [row["n"] for row in rows_of(chunks_of(reader, file, piece, schema))] == list(range(650, 5_000))
        obstore.delete(bucket.store, name)
        with pytest.raises(NeedsChange) as noticed:
            buckets.Buckets(bucket.settings()).open_arrow(locate(path))
        assert noticed.value.reason == reasons.SOURCE_CHANGED


@pytest.mark.parametrize("name", slow_except(["x.parquet", "x.json.gz", "x.json"], "x.parquet"))
def test_server_that_is_gone_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(parquet_rows, "_TOGETHER_BYTES", 1)
    rows = 1_600_000
    table = table_of(rows).select(["n"])
    if name.startswith("x.json"):
        text = "".join(f'{{"n": {number * 7919 % rows}}}\n' for number in range(rows)).encode()
    with S3Server(tmp_path) as server:
        bucket = Bucket(server)
        match name:
            case "x.parquet":
                path = bucket.put(name, parquet_bytes(table, row_group_size=rows // 8))
            case "x.json.gz":
                path = bucket.put(name, gzip.compress(text, 0))
            case _:
                path = bucket.put(name, text)
        reader = open_reader(name.split(".")[1], bucket.settings())
        (file,), schema = reader.describe([path])
        chunks = reader.read(file, whole(file), schema, BatchSizing(60.0))
        next(chunks)
        server.stop()
        with pytest.raises(Retryable) as failed:
            list(chunks)
        assert failed.value.reason == reasons.STORE_UNAVAILABLE
        assert path in failed.value.message
        server.start()
        assert sum(chunk.batch.num_rows for chunk in chunks_of(reader, file, whole(file), schema)) == rows


def test_a_part_of_a_folder_that_is_granted_to_others_is_not_looked_at_through_the_folder(bucket: Bucket) -> None:
    (whole_bucket,) = bucket.settings(namespaces=("*",)).storage
    (part,) = bucket.settings(prefix=f"s3://{bucket.name}/ops/", namespaces=("ops",)).storage
    settings = StorageSettings(storage=(whole_bucket, part))
    bucket.put("in/a.csv", b"a")
    bucket.put("ops/b.csv", b"b")

    def found(namespace: str, path: str) -> list[str]:
        files = SourceFiles(settings.used_by(Tenant(namespace)))
        return sorted(file.path for file in files.find(f"s3://{bucket.name}/{path}"))

    assert found("team-a", "in/*.csv") == [f"s3://{bucket.name}/in/a.csv"]
    assert len(found("ops", "**/*.csv")) == 2
    for path in ("**/*.csv", "ops/*.csv"):
        with pytest.raises(NeedsChange) as refused:
            found("team-a", path)
        assert refused.value.reason == reasons.ACCESS_NOT_GRANTED
