"""The steps' code, put in front of the import path once per process: a folder, or an archive in the write's store.

An archive is unpacked once per host.

Called by the driver before it loads the steps, and by each executor process before its first task.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import stat
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from checkpoint_protocol import reasons
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.archives import ArchiveRefused
from checkpoint_protocol.code.hiding import modules_in, refuse_hiding
from checkpoint_protocol.errors import Corrupt, NeedsChange, Retryable
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObjectStore

#: The code folder: what spec.code.path says.
FOLDER_VARIABLE: Final = "CHECKPOINTED_WRITE_CODE_FOLDER"

#: What lies in the folder of a digest: the files, and their sizes.
_FILES: Final = "files"
_SIZES: Final = "sizes.json"

_lock = threading.Lock()
_in_use: str | None = None


def use_code(store: ObjectStore, uid: str, digest: str | None) -> None:
    """Have the modules of the archive with this digest come before all others in this process. None: those of the code folder.

    Retryable if the archive is not in the store, Corrupt if it is not what its name says, NeedsChange if it is not taken or
    hides modules that this process needs.
    """
    global _in_use
    with _lock:
        if digest is None:
            _use_folder()
            return
        if digest == _in_use:
            return
        if _in_use is not None:
            raise Retryable(
                reasons.DRIVER_FAILED, f"this process runs the code {_in_use[:12]} already; {digest[:12]} needs another"
            )
        _put_first(have_code(store, uid, digest, private_folder()), "the archive of the steps' code")
        _in_use = digest


def _use_folder() -> None:
    """Have the modules of the folder come first, here and in the Python processes that this one starts.

    Nobody has put it on PYTHONPATH: this process, and Spark, would be made of what is in it before anybody could look.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if not named or (folder := str(Path(named))) in sys.path:
        return
    _put_first(Path(folder), f"spec.code.path: {folder}")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def _put_first(folder: Path, where: str) -> None:
    refuse_hiding(modules_in(folder), where)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def private_folder() -> Path:
    """Return a folder for temporary files that nobody else can write to: code is run from it.

    The same for all processes of a user on this host, unless somebody has put something else under its name.
    """
    folder = Path(tempfile.gettempdir()) / f"checkpointed-write-code-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return folder
    except FileExistsError:
        pass
    return Path(tempfile.mkdtemp(prefix="checkpointed-write-code-"))


def have_code(store: ObjectStore, uid: str, digest: str, folder: Path) -> Path:
    """Return the folder with the archive's files below a private folder, unpacking them unless they are there.

    The files appear all at once, by a rename, so that a process never sees half of them. A temporary folder may be cleaned of
    old files one by one; so what is there is compared with what was unpacked.
    """
    whole = folder / digest
    if _is_whole(whole):
        return whole / _FILES
    data = store.get(layout.code_path(uid, digest), archives.MAX_ARCHIVE_BYTES)
    if data is None:
        message = f"the code {digest[:12]} is not in {store.uri}; the next attempt puts it there again"
        raise Retryable(reasons.CODE_MISSING, message)
    if hashlib.sha256(data).hexdigest() != digest:
        raise Corrupt(reasons.RECORD_UNREADABLE, f"{store.uri}/{layout.code_path(uid, digest)} is not what its name says")
    made = Path(tempfile.mkdtemp(prefix="unpacking-", dir=folder))
    try:
        (made / _FILES).mkdir()
        sizes = archives.unpack(data, made / _FILES)
        (made / _SIZES).write_text(json.dumps(sizes))
        _move_into_place(made, whole)
    except ArchiveRefused as error:
        raise NeedsChange(
            reasons.CODE_MISSING, f"the archive of the steps' code cannot be used: {error}; make it anew"
        ) from error
    except OSError as error:
        message = f"the steps' code cannot be unpacked into {folder}: {error.strerror or error}"
        raise Retryable(reasons.DRIVER_FAILED, message) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return whole / _FILES


def _move_into_place(made: Path, whole: Path) -> None:
    for _ in range(2):
        try:
            made.rename(whole)
            return
        except OSError:
            if _is_whole(whole):
                return  # another process was first
            # What is there has lost files. Whoever runs from it finds ours under the same names in a moment.
            aside = Path(tempfile.mkdtemp(prefix="lost-", dir=whole.parent))
            if whole.exists():
                whole.rename(aside / "code")
            shutil.rmtree(aside, ignore_errors=True)
    made.rename(whole)


def _is_whole(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / _SIZES).read_text())
        return all((folder / _FILES / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
