"""Images as files: the pause image, which is made here, and the names of those that an archive holds."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from devtools import cache
from devtools.kubernetes import binaries

PAUSE = "localhost/pause:1"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def replaced(names: Collection[str], known: Mapping[str, str]) -> list[str]:
    """Return which of the known references nobody needs when these names are there: `known` are names and their digests.

    One image of each repository is made at each change of the code, and is some gigabytes. The kubelet's side of containerd knows
    each image by its configuration's digest too, a reference that would keep it when its name is gone.
    """
    repositories = {name.rpartition(":")[0] for name in names}
    is_bare = {reference: reference.startswith("sha256:") for reference in known}
    old = [
        reference
        for reference in known
        if not is_bare[reference] and reference not in names and reference.rpartition(":")[0] in repositories
    ]
    needed = {known[reference] for reference in known if not is_bare[reference] and reference not in old}
    return [*old, *(reference for reference in known if is_bare[reference] and known[reference] not in needed)]


def pause_archive() -> Path:
    program = binaries.pause()
    return cache.ensure(f"{program.parent.name}-image", lambda target: _write_pause(target / "pause.tar", program)) / "pause.tar"


def _write_pause(archive: Path, program: Path) -> None:
    """In the format of `docker save`: a layer, a configuration, and which belongs to which name."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        entry = tarfile.TarInfo("pause")
        entry.size, entry.mode = program.stat().st_size, 0o755
        with program.open("rb") as content:
            files.addfile(entry, content)
    configuration = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as files:
        for name, data in (
            ("layer.tar", layer.getvalue()),
            ("config.json", json.dumps(configuration).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            files.addfile(entry, io.BytesIO(data))


def references(archive: Path) -> list[str]:
    """The names that the images in an archive of `docker save` or of an OCI tool will have."""
    with tarfile.open(archive) as files:
        names = files.getnames()
        if "manifest.json" in names:
            return [tag for image in _json(files, "manifest.json") for tag in image["RepoTags"]]
        manifests = _json(files, "index.json")["manifests"]
        return [manifest["annotations"]["org.opencontainers.image.ref.name"] for manifest in manifests]


def _json(files: tarfile.TarFile, name: str) -> Any:
    member = files.extractfile(name)
    assert member is not None
    return json.load(member)
