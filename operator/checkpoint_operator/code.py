"""The digest of a write's code: what the seals carry, so that results of different code can be told apart."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest import Spec
from checkpoint_protocol.store import local_path


def code_digest(spec: Spec, archive: str | None = None, image: str | None = None) -> str:
    """Return the sha256, as hex, of the steps and of what they are called from.

    On one machine that is every file in the code folder, the digest of the `archive`, and the versions of packages used. With an
    `image` the rest is in the image, which is known by its name only. NeedsChange if the folder is not there.
    """
    digest = hashlib.sha256()
    for step in spec.steps:
        digest.update(step.result_json.encode())
    if archive is not None:
        digest.update(f"\0archive {archive}\0".encode())
    if image is not None:
        digest.update(f"\0image {image}\0{spec.code.path or ''}\0".encode())
        return digest.hexdigest()
    folder = code_folder(spec)
    if folder is not None:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not _is_left_out(path.relative_to(folder))):
            digest.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    calls = [step.call for step in spec.steps] + ([spec.source.program.call] if spec.source.program is not None else [])
    for name in sorted({call.split(":")[0].split(".")[0] for call in calls}):
        digest.update(f"\0{name}=={_package_version(name)}".encode())
    return digest.hexdigest()


def code_folder(spec: Spec) -> Path | None:
    """Return the folder of code.path. NeedsChange if it is not a folder on this machine."""
    if spec.code.path is None:
        return None
    folder = local_path(spec.code.path)
    if folder is None or not folder.is_dir():
        raise NeedsChange(reasons.CODE_MISSING, f"spec.code.path: {spec.code.path} is not a folder on this machine")
    return folder.resolve()


def _is_left_out(path: Path) -> bool:
    return any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def _package_version(module: str) -> str:
    for distribution in packages_distributions().get(module, ()):
        try:
            return f"{distribution}-{version(distribution)}"
        except PackageNotFoundError:
            continue
    return ""
