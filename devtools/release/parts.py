"""The parts of a release, each made from the files of one commit, with the tools that the project builds with anyway."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

from devtools.build_tools import BuildToolFailed, fetch, find, run
from devtools.kubernetes import binaries, project_images

CHART = Path("charts", "checkpointed-write-operator")
DIGESTS = "images.yaml"
ONE_IMAGE = "application/vnd.oci.image.manifest.v1+json"
DIGESTS_HEAD = """\
# The digests of the images of this release, as values of the chart: helm install --values images.yaml ...
# They hold wherever the images are pushed to without being changed. Give the two repositories beside it.
"""


def git(repository: Path, *words: str) -> str:
    done = subprocess.run([find("git"), "-C", str(repository), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildToolFailed(f"git {words[0]} in {repository}: {done.stderr.strip()}")
    return done.stdout.strip()


def export(repository: Path, commit: str, target: Path) -> Path:
    """The files of a commit without those that git ignores, each as old as the commit: packers write down how old files are."""
    archive, source = target / "source.tar", target / "source"
    git(repository, "archive", "--format=tar", f"--output={archive}", commit)
    with tarfile.open(archive) as files:
        files.extractall(source, filter="data")
    return source


def python_packages(source: Path, into: Path, seconds: str) -> None:
    built = source / "dist"
    build = [sys.executable, "-m", "uv", "build", "--quiet", "--sdist", "--wheel"]
    places = [f"--build-constraint={source / 'constraints.txt'}", f"--out-dir={built}", str(source)]
    fetch([*build, *places], environment={"SOURCE_DATE_EPOCH": seconds})
    for path in (*built.glob("*.whl"), *built.glob("*.tar.gz")):
        shutil.copy(path, into)


def chart(source: Path, into: Path) -> None:
    run([str(binaries.helm()), "package", str(source / CHART), "--destination", str(into)])


def crds(source: Path, into: Path) -> None:
    for path in sorted((source / "crds").glob("*.yaml")):
        shutil.copy(path, into)


def sboms(repository: Path, into: Path) -> None:
    made = repository / "build" / "sbom"
    shutil.rmtree(made, ignore_errors=True)
    run(["make", "--silent", "sbom"], cwd=repository)
    for path in sorted(made.glob("*.cdx.json")):
        shutil.copy(path, into)


def lacking_images(given: Path) -> list[str]:
    return [_of(given, name).name for name in project_images.FOLDERS if not _of(given, name).is_file()]


def images(given: Path | None, version: str, into: Path) -> None:
    """Archives of OCI, of what is built here or of what somebody gives; and their digests, as values of the chart."""
    digests = {}
    for name in project_images.FOLDERS:
        archive = into / f"checkpointed-writes-{name}-{version}.oci.tar"
        if given is None:
            project_images.write_oci_archive(project_images.build(name), archive, version)
        else:
            shutil.copy(_of(given, name), archive)
        digests[name] = {"image": {"digest": digest(archive)}}
    values = {**digests["operator"], "workloads": digests["spark"]}
    (into / DIGESTS).write_text(DIGESTS_HEAD + yaml.safe_dump(values, sort_keys=True))


def _of(given: Path, name: str) -> Path:
    return given / f"{name}.oci.tar"


def digest(archive: Path) -> str:
    """Of the one image in an archive: what a registry calls it when it is pushed unchanged."""
    try:
        with tarfile.open(archive) as files:
            member = files.extractfile("index.json")
            assert member is not None
            index: dict[str, Any] = json.load(member)
            (manifest,) = index["manifests"]
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise BuildToolFailed(f"{archive} is no OCI archive of one image: {error}") from error
    if manifest.get("mediaType") != ONE_IMAGE:
        # Who copies it takes one image out of it, with another digest.
        raise BuildToolFailed(
            f"{archive} holds a list of images. Build it for one platform; docker buildx takes --provenance=false"
        )
    return str(manifest["digest"])
