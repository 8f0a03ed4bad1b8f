"""From where the code lies to the write's store: one archive, known by its digest."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checkpoint_control.code.archive import archive_of_files, archive_of_object, fetch_uri, put_archive
from checkpoint_control.validation.fields import refusals
from checkpoint_local.code import digests_with
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObstoreStore, open_store
from tests.support.archives import HOSTILE, zip_of
from tests.support.stores import MemoryStore
from tests.unit.cli.test_code_digest import spec

FILES = {"flights.py": b"def clean(rows): return rows\n", "model.bin": b"\x00\xff"}


def names_in(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


# --- what is made into an archive -----------------------------------------------------------------------------------------


def test_the_files_of_a_config_map_become_one_archive_with_the_digest_of_its_bytes() -> None:
    archive = archive_of_files(FILES)

    assert names_in(archive.data) == ["flights.py", "model.bin"]
    assert archive.digest == hashlib.sha256(archive.data).hexdigest() == archive_of_files(dict(reversed(FILES.items()))).digest
    assert archive.digest != archive_of_files({**FILES, "model.bin": b"\x00\xfe"}).digest


def test_a_config_map_without_files_is_told() -> None:
    with pytest.raises(NeedsChange, match="--from-file") as caught:
        archive_of_files({})
    assert caught.value.reason == reasons.CODE_MISSING


def test_files_of_a_config_map_that_hide_what_the_driver_needs_are_refused() -> None:
    with pytest.raises(
        NeedsChange, match=r"spec\.code\.configMap: the ConfigMap has modules .*: email\.py hides 'email'"
    ) as caught:
        archive_of_files({**FILES, "email.py": b""})
    assert caught.value.reason == reasons.CODE_MISSING


def test_a_module_becomes_an_archive_and_an_archive_stays_as_it_is() -> None:
    zipped = zip_of({"package/__init__.py": ""})

    assert names_in(archive_of_object("s3://b/code/flights.py", b"x = 1").data) == ["flights.py"]
    assert archive_of_object("s3://b/code.zip", zipped).data == zipped
    assert archive_of_object("/code-1.0-py3-none-any.whl", zipped).data == zipped


def test_a_module_with_a_name_that_cannot_be_imported_is_told() -> None:
    with pytest.raises(NeedsChange, match=r"'my-steps\.py' cannot be imported"):
        archive_of_object("s3://b/my-steps.py", b"x = 1")

    assert names_in(archive_of_object("s3://b/my_steps.py", b"x = 1").data) == ["my_steps.py"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_object_is_refused_with_a_way_out(kind: str, tmp_path: Path) -> None:
    make, why = HOSTILE[kind]

    with pytest.raises(NeedsChange, match=f"spec.code.uri: s3://b/c.zip cannot be used: .*{why}.*; make it anew") as caught:
        archive_of_object("s3://b/c.zip", make())
    assert caught.value.reason == reasons.CODE_MISSING

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    subprocess.run([sys.executable, "-m", "zipfile", "-c", "code.zip", "package/"], cwd=tmp_path, check=True)
    assert "package/__init__.py" in names_in(archive_of_object("s3://b/c.zip", (tmp_path / "code.zip").read_bytes()).data)


def test_a_file_of_this_machine_is_read_for_the_runner_and_never_for_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "größe 100%.zip"
    file.write_bytes(zip_of({"a.py": ""}))

    assert fetch_uri(str(file), StorageSettings(), may_be_local=True).data == file.read_bytes()
    with pytest.raises(NeedsChange, match="reads no code from its disk"):
        fetch_uri(str(file), StorageSettings())
    with pytest.raises(NeedsChange, match="reads no code from its disk"):
        fetch_uri(f"file://{file}", StorageSettings())


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NeedsChange, match=r"gone\.zip cannot be read: No such file"):
        fetch_uri(str(tmp_path / "gone.zip"), StorageSettings(), may_be_local=True)

    (tmp_path / "there.zip").write_bytes(zip_of({"a.py": ""}))
    assert fetch_uri(str(tmp_path / "there.zip"), StorageSettings(), may_be_local=True).data


# --- into the store -------------------------------------------------------------------------------------------------------


def test_an_archive_is_put_once_under_its_digest(tmp_path: Path) -> None:
    store, archive = open_store(str(tmp_path), StorageSettings()), archive_of_files(FILES)

    put_archive(store, "u", archive)
    put_archive(store, "u", archive)

    assert [stored.path for stored in store.list("control/")] == [f"control/u/code/{archive.digest}.zip"]
    assert store.get(layout.code_path("u", archive.digest), len(archive.data)) == archive.data


class Deaf(ObstoreStore):
    """Lists nothing, so that puts are sent; says that everything exists, and gives what it was told to give."""

    answers: list[bytes | None]

    def __init__(self, answers: list[bytes | None]) -> None:
        self.answers = answers
        self._uri = "s3://deaf"

    def list(self, folder: str, borders: object = ()):  # type: ignore[no-untyped-def]
        return iter(())

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return False

    def get(self, path: str, most_bytes: int) -> bytes | None:
        return self.answers.pop(0)


def test_a_put_whose_answer_was_lost_is_recognised_by_its_bytes() -> None:
    archive = archive_of_files(FILES)

    put_archive(Deaf([None, archive.data]), "u", archive, pause=lambda _: None)


def test_other_bytes_under_its_name_are_corrupt() -> None:
    with pytest.raises(Corrupt, match="not what its name says"):
        put_archive(Deaf([b"other"]), "u", archive_of_files(FILES), pause=lambda _: None)

    store = MemoryStore()
    path = layout.code_path("u", archive_of_files(FILES).digest)
    store.objects[path] = b"other"
    with pytest.raises(Corrupt, match="remove it"):
        put_archive(store, "u", archive_of_files(FILES), pause=lambda _: None)
    store.delete([path])
    put_archive(store, "u", archive_of_files(FILES), pause=lambda _: None)
    assert store.objects[path] == archive_of_files(FILES).data


def test_a_put_that_never_appears_is_tried_again_later() -> None:
    with pytest.raises(Retryable, match="says that the object exists"):
        put_archive(Deaf([None] * 8), "u", archive_of_files(FILES), pause=lambda _: None)


# --- its part in the code's digest ----------------------------------------------------------------------------------------


def test_the_archive_and_the_image_change_the_digest_of_the_code() -> None:
    one, other = archive_of_files({"flights.py": b"x = 1"}), archive_of_files({"flights.py": b"x = 2"})
    delivered = spec(code={"uri": "s3://b/code.zip"})
    digests = [
        digests_with(None)(spec()),
        digests_with(one)(delivered),
        digests_with(other)(delivered),
        digests_with(None, "spark:1")(spec()),
        digests_with(None, "spark:2")(spec()),
        digests_with(one, "spark:1")(delivered),
        digests_with(None, "spark:1")(spec("/in/the/image")),
    ]

    assert len(set(digests)) == len(digests)
    assert digests[1] == digests_with(one)(delivered)


def test_a_file_of_an_archive_that_no_step_needs_does_not_change_the_digest() -> None:
    delivered = spec(code={"uri": "s3://b/code.zip"})
    code = {"flights.py": b"import helper", "helper.py": b"x = 1"}

    def digest(**changed: bytes) -> str:
        files = code | {f"{name}.py": text for name, text in changed.items()}
        return digests_with(archive_of_files(files))(delivered)

    assert digest(helper=b"x = 2") != digest() == digest(beside=b"")


# --- what one machine refuses ---------------------------------------------------------------------------------------------


def test_one_machine_refuses_a_config_map_and_a_suspended_write() -> None:
    assert refusals(spec()) == {}
    assert refusals(spec(code={"uri": "/c.zip"})) == {}

    refused = refusals(spec(code={"configMap": {"name": "c"}}, suspend=True))

    assert refused["spec.code.configMap"].reason == reasons.MANIFEST_INVALID
    assert "code.uri" in refused["spec.code.configMap"].message
    assert refused["spec.suspend"].reason == reasons.WRITE_SUSPENDED
    assert "take it out" in refused["spec.suspend"].message
