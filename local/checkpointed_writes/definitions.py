"""The text of a function or class, and what its names mean to it."""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import symtable
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def text_of(definition: Any) -> str | None:
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


def defines(text: str, name: str) -> bool:
    """Whether a text is one definition of this name, and nothing else."""
    try:
        (node,) = ast.parse(text).body
        if isinstance(node, ast.If):
            (node,) = node.body
    except (SyntaxError, ValueError):
        return False
    return isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name


def globals_of(text: str) -> list[str]:
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


def without_annotations(text: str) -> str:
    """Return a definition without the annotations of functions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    return ast.unparse(tree)


def modules_in(module: ModuleType, name: str, text: str) -> Iterator[str]:
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


def values(definition: Any, name: str) -> Iterator[Any]:
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
