"""The digest of a write's code: what the seals carry, so that results of different code can be told apart."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Final

from checkpoint_commit.ports import NO_CODE
from checkpoint_control.code.found import CodeFiles, find_code
from checkpoint_control.code.trees import FolderTree, Tree
from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.manifest.spec import Spec

_NOTHING: Final = CodeFiles(files=(), digest="")


def code_digest(spec: Spec, open_tree: Callable[[], Tree | None], image: str | None = None) -> str:
    """Return the sha256, as hex, of the steps that are done last and of what they are called from.

    That is the files of `code_files`, and the versions of packages that steps are called from. With an `image` these, and what is
    at `code.path`, are in the image, which is known by its name only.

    NeedsChange if the folder is not there, or a module that is named.
    """
    digest, part = hashlib.sha256(), spec.last_part
    if part.shuffles is not None and not part.steps and spec.source.program is None:
        return NO_CODE  # it moves rows
    for step in part.steps:
        digest.update(step.result_json.encode())
    found = code_files(spec, open_tree, image)
    if found.files:
        digest.update(f"\0code {found.digest}\0".encode())
    if image is not None:
        digest.update(f"\0image {image}\0{spec.code.path or ''}\0".encode())
        return digest.hexdigest()
    for name in sorted({module.split(".")[0] for module in found.missing}):
        digest.update(f"\0{name}=={_installed(name)}".encode())
    return digest.hexdigest()


def code_files(spec: Spec, open_tree: Callable[[], Tree | None], image: str | None = None) -> CodeFiles:
    """Return the files that the steps which are done last are made of; `missing` are modules of packages.

    A stage may name the modules: then it is these, whatever its steps are called from. NeedsChange where one is nowhere.
    """
    part = spec.last_part
    program = [spec.source.program.call] if spec.source.program is not None else []
    modules = part.modules or sorted({call.split(":")[0] for call in [*(step.call for step in part.steps), *program]})
    is_in_image = image is not None and spec.code.config_map is None and spec.code.uri is None
    if is_in_image and part.modules:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"spec.stages: code of the stage {part.name!r}: the code is in the image, whose modules only a pod can see; say "
            "code.configMap or code.uri, or leave code of the stage out",
        )
    try:
        tree = open_tree() if not is_in_image else None
        found = find_code(tree, modules, are_named=bool(part.modules)) if tree is not None else _NOTHING
    except archives.ArchiveRefused as error:
        raise NeedsChange(reasons.CODE_MISSING, f"spec.code: the archive cannot be used: {error}; make it anew") from error
    except OSError as error:
        place = f"{spec.code.path or spec.code.uri}"
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"spec.code: {error.filename or place} cannot be read: {error.strerror or error}; mend it, or take it out",
        ) from error
    if tree is None:
        found = CodeFiles(files=(), digest="", missing=tuple(modules))
    for module in found.missing if part.modules else ():
        if not _installed(module.split(".")[0]):
            raise NeedsChange(
                reasons.CODE_MISSING,
                f"spec.stages: code of the stage {part.name!r} names the module {module!r}, which is neither in what spec.code "
                "names nor in an installed package; correct the name",
            )
    return found


def _installed(name: str) -> str:
    """Return what tells versions of an installed package apart; empty where there is none."""
    if (folder := _written_in(name)) is not None:
        found = find_code(FolderTree(folder), [name], are_named=True)
        return found.digest if not found.missing else ""
    for distribution in packages_distributions().get(name, ()):
        try:
            return f"{distribution}-{version(distribution)}"
        except PackageNotFoundError:
            continue
    return ""


def _written_in(name: str) -> Path | None:
    """Return the folder of a package that is imported from where it is written (pip install --editable, PYTHONPATH).

    Its version says nothing of edits. None for what an installer has put into place.
    """
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None or not found.has_location:
        return None
    origin = Path(found.origin)
    if not {"site-packages", "dist-packages"}.isdisjoint(origin.parts):
        return None
    return origin.parent.parent if origin.name.startswith("__init__.") else origin.parent
