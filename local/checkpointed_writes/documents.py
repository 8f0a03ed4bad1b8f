"""Manifests that are given as dicts: functions stand for their names, and what is no plain data is refused with its place."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from checkpoint_protocol.manifest.spec import ManifestInvalid

#: What installers put into place, which every process finds.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def plain_manifest(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest as plain data. ManifestInvalid where something in it can be none.

    A function, or a class, of a module becomes `module:name`. Where spec.code is not set, it is the folder that the first such
    module lies in, unless that is installed.
    """
    folders: list[Path] = []
    made: dict[str, Any] = _plain(document, "", folders)
    spec = made.get("spec")
    if folders and isinstance(spec, dict) and not spec.get("code"):
        spec["code"] = {"path": str(folders[0])}
    return made


def _plain(value: Any, place: str, folders: list[Path]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(one, f"{place}.{name}".lstrip("."), folders) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, f"{place}.{number}", folders) for number, one in enumerate(value)]
    if isinstance(value, os.PathLike | datetime.date):
        return str(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if callable(value):
        return _name_of(value, place, folders)
    raise ManifestInvalid((f"{place}: a {type(value).__qualname__} is no plain data; give text, numbers, lists and dicts",))


def _name_of(function: Callable[..., Any], place: str, folders: list[Path]) -> str:
    name, module_name = getattr(function, "__qualname__", ""), getattr(function, "__module__", "")
    module = sys.modules.get(module_name)
    if module_name == "__main__" or getattr(module, name, None) is not function:
        title = name.rpartition(".")[2] if name.rpartition(".")[2].isidentifier() else "step"
        why = (
            f"{place}: {_described(function, name, module_name)}, which another process cannot import; put it into a file of its "
            f"own, for example steps.py, and say 'call': 'steps:{title}' and 'code': {{'path': FOLDER_OF_THE_FILE}}"
        )
        raise ManifestInvalid((why,))
    file = getattr(module, "__file__", None)
    if file is not None and _INSTALLED.isdisjoint(Path(file).parts):
        # A package lies as many folders deep as its name has parts.
        depth = module_name.count(".") + (Path(file).stem == "__init__")
        folders.append(Path(file).resolve().parents[depth])
    return f"{module_name}:{name}"


def _described(function: Callable[..., Any], name: str, module: str) -> str:
    if name.endswith("<lambda>"):
        return "it is a lambda"
    if not name:
        return f"it is a {type(function).__qualname__}"
    if module == "__main__":
        return f"{name} is of a notebook's cell, or of the script that runs"
    return f"{name} is no function or class at the top of the module {module}"
