"""The code of a write's steps, as this machine has it: a folder, an archive, or installed packages."""

from __future__ import annotations

from collections.abc import Callable

from checkpoint_control.code.archive import CodeArchive, fetch_uri
from checkpoint_control.code.digest import code_digest
from checkpoint_control.code.trees import ArchiveTree, FolderTree, Tree, code_folder, keeping
from checkpoint_protocol.code.archives import OpenArchive
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.places.settings import Settings


def code_archive(spec: Spec, settings: Settings) -> CodeArchive | None:
    """Fetch the archive of code.uri, if that is where the code lies."""
    return fetch_uri(spec.code.uri, settings, may_be_local=True) if spec.code.uri is not None else None


def code_tree(spec: Spec, archive: CodeArchive | None) -> Callable[[], Tree | None]:
    """Return what opens the code of a manifest, where `code_archive` has returned this. None: it is in installed packages."""
    if archive is not None:
        return lambda: ArchiveTree(OpenArchive(archive.data))

    def of_folder() -> Tree | None:
        folder = code_folder(spec)
        return FolderTree(folder, keeping(folder, spec)) if folder is not None else None

    return of_folder


def digests_with(archive: CodeArchive | None, image: str | None = None) -> Callable[[Spec], str]:
    """Return what gives the digest of a manifest's code, where `code_archive` has returned this.

    `image`: that of a cluster's drivers, where the write is one of a cluster.
    """
    return lambda spec: code_digest(spec, code_tree(spec, archive), image)
