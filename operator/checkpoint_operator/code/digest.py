"""The digest of a write's code: what the seals carry, so that results of different code can be told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from checkpoint_operator.loop.stages import NO_CODE
from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.hiding import modules_in, refuse_hiding
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.pipelines import StagePart
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.store.object_store import local_path


def code_digest(
    spec: Spec, archive: str | None = None, image: str | None = None, open_archive: Callable[[], bytes] | None = None
) -> str:
    """Return the sha256, as hex, of the steps that are done last and of what they are called from.

    On one machine that is every file in the code folder, the digest of the `archive`, and the versions of packages used. With an
    `image` the rest is in the image, which is known by its name only. Where a stage names the modules that it depends on, it is
    these of the folder, or of the archive, which `open_archive` gives then.

    NeedsChange if the folder is not there, or a module that is named.
    """
    digest, part = hashlib.sha256(), spec.last_part
    if part.shuffles is not None and not part.steps and spec.source.program is None:
        return NO_CODE  # it moves rows
    for step in part.steps:
        digest.update(step.result_json.encode())
    if archive is not None and part.modules:
        assert open_archive is not None
        try:
            _add_modules(digest, part, archives.contents(open_archive()))
        except archives.ArchiveRefused as error:
            raise NeedsChange(
                reasons.CODE_MISSING, f"spec.code: the archive {archive[:12]} cannot be used: {error}; make it anew"
            ) from error
    elif archive is not None:
        digest.update(f"\0archive {archive}\0".encode())
    if image is not None:
        if part.modules and archive is None:
            raise NeedsChange(
                reasons.CODE_MISSING,
                f"spec.stages: code of the stage {part.name!r}: the code is in the image, whose modules only a pod can see; say "
                "code.configMap or code.uri, or leave code of the stage out",
            )
        digest.update(f"\0image {image}\0{spec.code.path or ''}\0".encode())
        return digest.hexdigest()
    folder = code_folder(spec)
    if folder is not None:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_left_out(path.relative_to(folder)))
        files = ((path.relative_to(folder).as_posix(), [path.read_bytes()]) for path in paths)
        if part.modules:
            _add_modules(digest, part, files)
        else:
            _add(digest, files)
    elif archive is None and part.modules:
        _add_modules(digest, part, ())
    calls = [step.call for step in part.steps] + ([spec.source.program.call] if spec.source.program is not None else [])
    for name in sorted({call.split(":")[0].split(".")[0] for call in calls}):
        digest.update(f"\0{name}=={_package_version(name)}".encode())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, files: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    for path, chunks in files:
        digest.update(f"\0{path}\0".encode())
        for chunk in chunks:
            digest.update(chunk)


def _add_modules(digest: hashlib._Hash, part: StagePart, files: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Add the files of the modules that a stage names, or the versions of packages that are installed."""
    found: set[str] = set()
    for path, chunks in files:
        if of := {module for module in part.modules if _is_of(path, module)}:
            found |= of
            _add(digest, [(path, chunks)])
    for module in part.modules:
        installed = _package_version(module.split(".")[0]) if module not in found else ""
        if module not in found and not installed:
            raise NeedsChange(
                reasons.CODE_MISSING,
                f"spec.stages: code of the stage {part.name!r} names the module {module!r}, which is neither in what spec.code "
                "names nor in an installed package; correct the name",
            )
        digest.update(f"\0{module}=={installed}".encode())


def _is_of(path: str, module: str) -> bool:
    """Whether a file belongs to a module or package, or to a package that it lies in."""
    place = module.replace(".", "/")
    parents = (place.rsplit("/", up)[0] for up in range(1, place.count("/") + 1))
    return path == f"{place}.py" or path.startswith(f"{place}/") or path in {f"{parent}/__init__.py" for parent in parents}


def code_folder(spec: Spec) -> Path | None:
    """Return the folder of code.path. NeedsChange if it is not a folder on this machine, or hides modules of the driver."""
    if spec.code.path is None:
        return None
    folder = local_path(spec.code.path)
    if folder is None or not folder.is_dir():
        raise NeedsChange(reasons.CODE_MISSING, f"spec.code.path: {spec.code.path} is not a folder on this machine")
    refuse_hiding(modules_in(folder), f"spec.code.path: {spec.code.path}")
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
