"""`make release` in a clone: verified in the words of the documentation, and refused after any change to any of its files."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from devtools.build_tools import BuildToolFailed
from devtools.kubernetes import binaries
from devtools.release.parts import digest
from devtools.release.signature import SUMS
from tests.end_to_end.test_documented_blocks import commands, shown_after
from tests.support import needs
from tests.support.waiting import patience

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = "docs/operations/verify-a-release.md"
KEPT_OUT: Final = {"PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "KEY", "IMAGES"}
GIT: Final = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "tests")
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in KEPT_OUT} | GIT
VERSION: Final = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
PARTS: Final = {
    "COMMIT",
    SUMS,
    f"{SUMS}.sig",
    f"checkpointed-write-operator-{VERSION}.tgz",
    f"checkpointed_writes-{VERSION}-py3-none-any.whl",
    f"checkpointed_writes-{VERSION}.tar.gz",
    "checkpointedwrites.checkpointed.dev.yaml",
    "operator.cdx.json",
    "spark_app.cdx.json",
}
OF_IMAGES: Final = {
    f"checkpointed-writes-operator-{VERSION}.oci.tar",
    f"checkpointed-writes-spark-{VERSION}.oci.tar",
    "images.yaml",
}


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience(60),
        check=False,
    )


def ran(line: str, folder: Path) -> str:
    done = run(line, folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this repository is now, as one commit of a clone, with the environment of the tests as its own."""
    binaries.helm()
    if not (ROOT / ".git").exists():
        needs.skip("this folder is no clone of git")
    clone = tmp_path_factory.mktemp("release") / "clone"
    for name in ran("git ls-files --cached --others --exclude-standard", ROOT).splitlines():
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    (clone / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    # What `make setup` makes, and then takes as done.
    (clone / ".venv" / ".ready").touch()
    ran("git init --quiet && git add . && git -c commit.gpgsign=false commit --quiet --no-verify --message=all", clone)
    return clone


def put_stand_in(archive: Path, content: bytes, of: str = "manifest") -> str:
    """An OCI archive whose image has no layers worth the name; returns its digest."""
    named = f"sha256:{hashlib.sha256(content).hexdigest()}"
    index = {"schemaVersion": 2, "manifests": [{"mediaType": f"application/vnd.oci.image.{of}.v1+json", "digest": named}]}
    with tarfile.open(archive, "w") as files:
        for name, data in (("index.json", json.dumps(index).encode()), (f"blobs/{named.replace(':', '/')}", content)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            files.addfile(entry, io.BytesIO(data))
    return named


@pytest.fixture(scope="module")
def digests(clone: Path) -> dict[str, str]:
    images = clone.parent / "images"
    images.mkdir()
    return {name: put_stand_in(images / f"{name}.oci.tar", name.encode()) for name in ("operator", "spark")}


@pytest.fixture(scope="module")
def key(clone: Path) -> Path:
    make_key, _ = commands(PAGE, "ssh-keygen -t ed25519")
    ran(f"{make_key} -N ''", clone)
    return clone.parent / "release_key"


@pytest.fixture(scope="module")
def printed(clone: Path, key: Path, digests: dict[str, str]) -> str:
    _, release = commands(PAGE, "ssh-keygen -t ed25519")
    return ran(f"{release} IMAGES=../images", clone)


@pytest.fixture(scope="module")
def made(clone: Path, printed: str) -> Path:
    """Kept aside, as the next release takes its place; with the line of allowed_signers where the page says."""
    (line,) = (line.strip() for line in printed.splitlines() if "ssh-ed25519" in line)
    (clone.parent / "allowed_signers").write_text(f"{line}\n")
    return Path(shutil.copytree(clone / "build" / "release", clone.parent / "made"))


def verified(folder: Path) -> Iterator[subprocess.CompletedProcess[str]]:
    for line in commands(PAGE, "ssh-keygen -Y verify"):
        yield run(line, folder)


def is_verified(folder: Path) -> bool:
    return all(done.returncode == 0 for done in verified(folder))


def test_a_release_is_verified_by_the_commands_of_the_page_and_lists_every_file(made: Path) -> None:
    signature, sums = verified(made)

    assert (signature.returncode, sums.returncode) == (0, 0), signature.stdout + sums.stdout
    for line in shown_after(PAGE, "ssh-keygen -Y verify"):
        assert line in signature.stdout
    assert {path.name for path in made.iterdir()} == PARTS | OF_IMAGES
    assert sums.stdout.count(": OK\n") == len(PARTS | OF_IMAGES) - 2


def test_a_byte_that_is_changed_in_any_file_makes_the_verification_fail(made: Path) -> None:
    for path in sorted(made.iterdir()):
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        assert not is_verified(made), path.name
        path.write_bytes(content)

    assert is_verified(made)


def test_checksums_that_somebody_else_signs_for_changed_files_are_refused(made: Path, tmp_path: Path) -> None:
    forged = Path(shutil.copytree(made, tmp_path / "forged"))
    shutil.copy(made.parent / "allowed_signers", tmp_path)
    assert is_verified(forged)
    (forged / "images.yaml").write_text("image: {digest: 'sha256:00'}\n")
    ran("ssh-keygen -q -t ed25519 -N '' -f other", tmp_path)

    ran("sha256sum $(cut -c67- SHA256SUMS) > sums && mv sums SHA256SUMS && rm SHA256SUMS.sig", forged)
    ran("ssh-keygen -q -Y sign -f ../other -n checkpointed-writes-release SHA256SUMS", forged)

    signature, sums = verified(forged)
    assert (signature.returncode != 0, sums.returncode) == (True, 0)


def test_the_chart_of_a_release_takes_the_digests_of_its_images(made: Path, digests: dict[str, str]) -> None:
    repositories = "--set=image.repository=registry.example.com/o,workloads.image.repository=registry.example.com/s"
    rendered = ran(f"{binaries.helm()} template cw *.tgz --values images.yaml {repositories}", made)

    assert f"registry.example.com/o@{digests['operator']}" in rendered
    assert f"registry.example.com/s@{digests['spark']}" in rendered


def test_a_release_is_of_the_commit_and_says_which_key_users_have_to_know(
    clone: Path, made: Path, printed: str, key: Path
) -> None:
    commit = ran("git rev-parse HEAD", clone)

    assert (made / "COMMIT").read_text() == commit
    assert f"version {VERSION} of commit {commit.strip()}" in printed
    assert key.with_suffix(".pub").read_text().split()[1] in printed
    crd = made / "checkpointedwrites.checkpointed.dev.yaml"
    assert crd.read_bytes() == (ROOT / "crds" / crd.name).read_bytes()
    assert yaml.safe_load((made / "images.yaml").read_text()).keys() == {"image", "workloads"}


@pytest.mark.slow
def test_a_second_release_of_a_commit_has_the_same_bytes_and_says_that_images_were_left_out(
    clone: Path, made: Path, key: Path
) -> None:
    printed = ran(f"make release KEY={key} IMAGES=none", clone)

    again = clone / "build" / "release"
    assert "left out, as IMAGES=none says: the images of operator and Spark" in printed
    assert {path.name for path in again.iterdir()} == PARTS
    assert is_verified(again.rename(clone.parent / "again"))
    for name in PARTS - {SUMS, f"{SUMS}.sig"}:
        assert (clone.parent / "again" / name).read_bytes() == (made / name).read_bytes(), name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "ssh-keygen -t ed25519 -C checkpointed-writes-release -f release_key"),
        ("KEY=../nothing", "KEY="),
        ("KEY=Makefile", "cannot sign"),
    ],
)
def test_without_a_key_that_signs_nothing_is_built_and_it_is_said_how_to_make_one(
    clone: Path, tmp_path: Path, arguments: str, says: str
) -> None:
    shutil.rmtree(clone / "build", ignore_errors=True)

    done = run(f"make release {arguments}", clone)

    assert done.returncode != 0
    assert says in done.stdout
    assert "ssh-keygen -t ed25519" in done.stdout
    assert not (clone / "build").exists()


def test_changes_that_are_in_no_commit_are_refused_by_name(clone: Path, key: Path) -> None:
    shutil.rmtree(clone / "build", ignore_errors=True)
    (clone / "docs" / "note.md").write_text("not committed\n")
    try:
        done = run(f"make release KEY={key} IMAGES=none", clone)
    finally:
        (clone / "docs" / "note.md").unlink()

    assert done.returncode != 0
    assert "has changes that are in no commit" in done.stdout
    assert "docs/note.md" in done.stdout
    assert not (clone / "build").exists()


def test_an_archive_of_several_images_is_refused_as_its_digest_would_be_of_none_of_them(tmp_path: Path) -> None:
    put_stand_in(tmp_path / "operator.oci.tar", b"several", of="index")

    with pytest.raises(BuildToolFailed, match=r"operator\.oci\.tar holds a list of images.*--provenance=false"):
        digest(tmp_path / "operator.oci.tar")


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_a_file_that_is_no_archive_of_images_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "operator.oci.tar").write_bytes(content)

    with pytest.raises(BuildToolFailed, match=r"operator\.oci\.tar is no OCI archive of one image"):
        digest(tmp_path / "operator.oci.tar")


def test_images_that_are_not_there_are_named_with_the_ways_out(clone: Path, key: Path, tmp_path: Path) -> None:
    put_stand_in(tmp_path / "operator.oci.tar", b"operator")

    done = run(f"make release KEY={key} IMAGES={tmp_path}", clone)

    assert done.returncode != 0
    assert f"IMAGES={tmp_path} has no spark.oci.tar" in done.stdout
    assert "IMAGES=none" in done.stdout
    assert not (clone / "build" / "release").exists()
