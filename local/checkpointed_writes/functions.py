"""Functions of a notebook or a script as a module of their own: their text, and that of what they use there.

Another process cannot import what was defined in a notebook's cell or in the script that runs, and running all of it again would
do more than the functions say. So the module has the functions and classes by their text, what they import, and constants by
their values. Nothing is pickled. What has no text (an open file, a client, a model) is refused by its name.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Final

from checkpoint_protocol.manifest.spec import ManifestInvalid
from checkpoint_protocol.places.secrets import says_secret, secrets_of
from checkpointed_writes.definitions import defines, globals_of, modules_in, text_of, values, without_annotations

#: The first line of a module that was written here; a file without it is somebody's own, and stays.
_WRITTEN: Final = (
    '"""Written by checkpointed_writes from the functions of a notebook or script. It is written anew by each run."""'
)
_MOST_OF_A_CONSTANT: Final = 64 << 10
_LEAST_OF_A_SECRET: Final = 16
#: What installers put into place, which every process finds.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


@dataclass(slots=True)
class TextModule:
    """A module that is made of functions, one after another."""

    name: str
    _imports: dict[str, str] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    #: What each name means.
    _taken: dict[str, Any] = field(default_factory=dict)

    def add(self, function: Callable[..., Any], place: str) -> str:
        """Take a function or a class, and return its name in the module. ManifestInvalid says what cannot be taken, and why."""
        name = getattr(function, "__name__", "")
        if not name.isidentifier() or inspect.ismethod(function):
            what = "a lambda" if name == "<lambda>" else f"a {type(function).__qualname__}"
            raise ManifestInvalid((f"{place}: it is {what}, which has no text of its own; write a function or a class",))
        self._take(name, function, place)
        return name

    @property
    def text(self) -> str:
        """The module. The same functions give the same text, in whatever order the cells were run."""
        imports = "\n".join(sorted(self._imports.values()))
        parts = [_WRITTEN, "from __future__ import annotations", imports, *self._texts.values()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def write(self, folder: Path) -> Path:
        """Write the module into a folder, unless it is there as it is. ManifestInvalid if the file is somebody's own."""
        path = folder / f"{self.name}.py"
        text = self.text
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else None
            if before is not None and not before.startswith(_WRITTEN):
                raise ManifestInvalid(
                    (f"steps: {path} is a file of yours, where the functions would be written; rename it, or the write",)
                )
            if before != text:
                beside = path.with_name(f".{path.name}.{os.getpid()}")
                beside.write_text(text, encoding="utf-8")
                beside.replace(path)
        except OSError as error:
            why = f"steps: the functions cannot be written to {path}: {error.strerror}; run where that can be written"
            raise ManifestInvalid((why,)) from error
        return path

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _take(self, name: str, value: Any, place: str) -> None:
        if name in self._taken:
            if self._taken[name] is not value and not _equal_constants(self._taken[name], value):
                raise ManifestInvalid((f"{place}: two things are called {name!r} in the functions; rename one of them",))
            return
        self._taken[name] = value
        if (line := _import_of(name, value)) is not None:
            self._imports[name] = line
        elif (literal := _literal_of(value, self._imports)) is not None:
            if _is_secret(name, value, literal):
                why = (
                    f"it uses {name}, which looks like a secret, and would be written to a file and to the checkpoint store; "
                    "read it in the function, as os.environ[...]"
                )
                raise ManifestInvalid((f"{place}: {why}",))
            self._texts[name] = f"{name} = {literal}"
        elif inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            self._take_text(name, value, place)
        else:
            raise ManifestInvalid((f"{place}: it uses {name}, {_described(value)}, {_WAY_OUT}",))

    def _take_text(self, name: str, value: Any, place: str) -> None:
        inner = inspect.unwrap(value)
        text = text_of(inner)
        if text is None or not defines(text, name):
            why = (
                f"the text of {name} is not known here; put it into a file of its own, such as steps.py, and import it from there"
            )
            raise ManifestInvalid((f"{place}: {why}",))
        needed = globals_of(without_annotations(text))
        for used in [*needed, *(one for one in globals_of(text) if one not in needed)]:
            for found in values(inner, used) if used != name else ():
                # What only annotations name is not looked up when the function is called.
                with contextlib.nullcontext() if used in needed else contextlib.suppress(ManifestInvalid):
                    self._take(used, found, f"{place}: {name}")
                if isinstance(found, ModuleType):
                    self._imports |= {inside: f"import {inside}" for inside in modules_in(found, used, text)}
        self._texts[name] = text


_WAY_OUT: Final = (
    "which another process cannot be given; make it in the function, or in setup() of a class that is the step, or put both "
    "into a file of its own"
)


def is_importable(function: Any) -> bool:
    """Whether another process finds it under its module's name: at the top of a module that is not the script that runs."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    return module is not None and module.__name__ != "__main__" and getattr(module, name, None) is function


def folder_of(function: Any) -> Path | None:
    """Return the folder from which the modules of a function are imported; None of what is installed.

    Of a notebook or a shell it is the working directory.
    """
    main, name = sys.modules["__main__"], getattr(function, "__module__", None) or ""
    module = sys.modules.get(name, main)
    file = getattr(module, "__file__", None)
    if module is main and ("IPython" in sys.modules or file is None):
        return Path.cwd()
    if file is None or not _INSTALLED.isdisjoint(Path(file).parts):
        return None
    if module is main:  # python -m package.module
        name = main.__spec__.name if main.__spec__ is not None else ""
    # A package lies as many folders deep as its name has parts.
    return Path(file).resolve().parents[name.count(".") + (Path(file).stem == "__init__")]


def _import_of(name: str, value: Any) -> str | None:
    """Return the line that imports a module, or what lies at the top of one."""
    if isinstance(value, ModuleType):
        if value.__name__ == "__main__":
            return None
        package, _, last = value.__name__.rpartition(".")
        if not package:
            return f"import {name}" if name == last else f"import {last} as {name}"
        if name == value.__name__.partition(".")[0]:
            return f"import {name}"
        return f"from {package} import {last}" if name == last else f"from {package} import {last} as {name}"
    defined = value.__qualname__ if is_importable(value) else name
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or getattr(module, defined, None) is not value:
        return None
    return f"from {module.__name__} import {defined}" + ("" if defined == name else f" as {name}")


def _literal_of(value: Any, imports: dict[str, str]) -> str | None:
    """Return a constant as Python's text of it, if it is plain data, a path, a pattern or a logger."""
    if isinstance(value, PurePath):
        imports["Path"] = "from pathlib import Path"
        return f"Path({str(value)!r})"
    if isinstance(value, re.Pattern):
        imports["re"] = "import re"
        return f"re.compile({value.pattern!r}, {value.flags})"
    if isinstance(value, logging.Logger):
        imports["logging"] = "import logging"
        return f"logging.getLogger({value.name!r})"
    if not _is_plain(value):
        return None
    literal = repr(sorted(value, key=repr)) if isinstance(value, set | frozenset) else repr(value)
    if isinstance(value, set | frozenset):
        literal = f"{type(value).__name__}({literal})"
    return literal if len(literal) <= _MOST_OF_A_CONSTANT else None


def _is_plain(value: Any) -> bool:
    if value is None or type(value) in (bool, int, str, bytes):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    return type(value) is dict and all(_is_plain(name) and _is_plain(one) for name, one in value.items())


def _is_secret(name: str, value: Any, literal: str) -> bool:
    """Whether a constant has a secret of the environment in it, or is a long word whose name says that it is one."""
    is_word = isinstance(value, str | bytes) and len(value) >= _LEAST_OF_A_SECRET and len(value.split()) == 1
    return (is_word and says_secret(name.lower())) or secrets_of(None, os.environ).mask(literal) != literal


def _equal_constants(one: Any, other: Any) -> bool:
    return _is_plain(one) and _is_plain(other) and repr(one) == repr(other)


def _described(value: Any) -> str:
    if _is_plain(value):
        return f"a {type(value).__name__} of more than {_MOST_OF_A_CONSTANT:,} characters"
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
