"""Functions of a notebook or a script as a module of their own: their text, and that of what they use there.

Another process cannot import what was defined in a notebook's cell or in the script that runs, and running all of it again would
do more than the functions say. So the module has the functions and classes by their text, what they import, and constants by
their values. Nothing is pickled. What has no text (an open file, a client, a model) is refused by its name.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import logging
import math
import os
import re
import symtable
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, Final

from checkpoint_protocol.manifest.spec import ManifestInvalid

#: The first line of a module that was written here; a file without it is somebody's own, and stays.
_WRITTEN: Final = (
    '"""Written by checkpointed_writes from the functions of a notebook or script. It is written anew by each run."""'
)
_MOST_OF_A_CONSTANT: Final = 64 << 10
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
            self._texts[name] = f"{name} = {literal}"
        elif inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            self._take_text(name, value, place)
        else:
            raise ManifestInvalid((f"{place}: it uses {name}, {_described(value)}, {_WAY_OUT}",))

    def _take_text(self, name: str, value: Any, place: str) -> None:
        inner = inspect.unwrap(value)
        text = _text_of(inner)
        if text is None or not _defines(text, name):
            why = (
                f"the text of {name} is not known here; put it into a file of its own, such as steps.py, and import it from there"
            )
            raise ManifestInvalid((f"{place}: {why}",))
        needed = _globals_of(_without_annotations(text))
        for used in [*needed, *(one for one in _globals_of(text) if one not in needed)]:
            for found in _values(inner, used) if used != name else ():
                # What only annotations name is not looked up when the function is called.
                with contextlib.nullcontext() if used in needed else contextlib.suppress(ManifestInvalid):
                    self._take(used, found, f"{place}: {name}")
                if isinstance(found, ModuleType):
                    self._imports |= {inside: f"import {inside}" for inside in _modules_in(found, used, text)}
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


def _equal_constants(one: Any, other: Any) -> bool:
    return _is_plain(one) and _is_plain(other) and repr(one) == repr(other)


def _described(value: Any) -> str:
    if _is_plain(value):
        return f"a {type(value).__name__} of more than {_MOST_OF_A_CONSTANT:,} characters"
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"


def _text_of(definition: Any) -> str | None:
    """Return the text of a function or class, with its decorators."""
    try:
        text = inspect.getsource(definition).rstrip()
    except (OSError, TypeError):
        pass
    else:
        # Not dedented: that would change texts of several lines in it.
        return f"if True:\n{text}" if text[:1].isspace() else text
    # inspect finds a class by the file of its module, which a notebook's cells have none of.
    found = None
    for source in _cells():
        found = _segment(source, definition.__name__) or found
    return found


def _cells() -> Iterator[str]:
    """Give the texts that were compiled from no file, in the order in which they were run."""
    for entry in list(linecache.cache.values()):
        if len(entry) == 4 and entry[1] is None:
            yield "".join(entry[2])


def _segment(source: str, name: str) -> str | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in reversed(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
    return None


def _defines(text: str, name: str) -> bool:
    try:
        (node,) = ast.parse(text).body
        if isinstance(node, ast.If):
            (node,) = node.body
    except (SyntaxError, ValueError):
        return False
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name


def _globals_of(text: str) -> list[str]:
    """Return the names that a definition takes from around it, in order."""
    names: set[str] = set()
    tables = [symtable.symtable(text, "functions", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        at_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (
                not symbol.is_assigned() and not symbol.is_imported() if at_top else symbol.is_global()
            ):
                names.add(symbol.get_name())
    return sorted(names)


def _without_annotations(text: str) -> str:
    """Return a definition without the annotations of functions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.unparse(tree)


def _modules_in(module: ModuleType, name: str, text: str) -> Iterator[str]:
    """Give the modules inside a package that a definition reaches through it: somebody has imported them, too."""
    for node in ast.walk(ast.parse(text)):
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.insert(0, node.attr)
            node = node.value
        reached: Any = module
        for attribute in attributes if isinstance(node, ast.Name) and node.id == name else ():
            inside = f"{reached.__name__}.{attribute}"
            reached = getattr(reached, attribute, None)
            if not isinstance(reached, ModuleType) or reached.__name__ != inside:
                break
            yield inside


def _values(definition: Any, name: str) -> Iterator[Any]:
    """Give what a name means to a definition, if it means anything: builtins, and annotations of nothing, are left alone."""
    functions = [definition] if inspect.isfunction(definition) else [*filter(inspect.isfunction, vars(definition).values())]
    for function in functions:
        inside = function.__code__.co_freevars
        if name in inside and function.__closure__ is not None:
            with contextlib.suppress(ValueError):  # it is not set yet
                yield function.__closure__[inside.index(name)].cell_contents
            return
    around = definition.__globals__ if inspect.isfunction(definition) else vars(sys.modules[definition.__module__])
    if name in around and not (name.startswith("__") and name.endswith("__")):
        yield around[name]
