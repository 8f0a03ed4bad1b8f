"""Manifests that are given as dicts: functions stand for their names, and what is no plain data is refused with its place."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoint_protocol.manifest.spec import ManifestInvalid
from checkpointed_writes.choices import label_of
from checkpointed_writes.functions import TextModule, folder_of, is_importable


def plain_manifest(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest as plain data. ManifestInvalid where something in it can be none.

    A function, or a class, of a module becomes `module:name`. One of a notebook or of the script that runs is written to a module
    (see functions.py), in the folder of that. Where spec.code is not set, it is the folder that the modules lie in, unless they
    are installed.
    """
    code = _Code(TextModule(f"{label_of(str((document.get('metadata') or {}).get('name', ''))).replace('-', '_')}_steps"))
    made: dict[str, Any] = _plain(document, "", code)
    spec = made.get("spec")
    if len(folders := sorted(code.folders)) > 1:
        named = " and ".join(map(str, folders))
        raise ManifestInvalid((f"spec.code: the functions lie in {named}; put them into one folder, or into one module",))
    if code.written_to is not None:
        code.written.write(code.written_to)
    if folders and isinstance(spec, dict) and not spec.get("code"):
        spec["code"] = {"path": str(folders[0])}
    return made


@dataclass(slots=True)
class _Code:
    """The folders of the functions, and the module for those that no other process can import."""

    written: TextModule
    written_to: Path | None = None
    folders: set[Path] = field(default_factory=set)


def _plain(value: Any, place: str, code: _Code) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one, f"{place}.{name}".lstrip("."), code) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, f"{place}.{number}", code) for number, one in enumerate(value)]
    if isinstance(value, os.PathLike | datetime.date):
        return str(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if callable(value):
        return _name_of(value, place, code)
    raise ManifestInvalid((f"{place}: a {type(value).__qualname__} is no plain data; give text, numbers, lists and dicts",))


def _name_of(function: Callable[..., Any], place: str, code: _Code) -> str:
    folder = folder_of(function)
    if is_importable(function):
        name = f"{function.__module__}:{function.__qualname__}"
    else:
        folder = folder or Path.cwd()
        name = f"{code.written.name}:{code.written.add(function, place)}"
        code.written_to = folder
    if folder is not None:
        code.folders.add(folder)
    return name
