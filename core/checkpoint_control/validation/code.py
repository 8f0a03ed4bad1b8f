"""The steps' code, and an audit's, found and parsed but never imported: is there the module, and the callable at its top?"""

from __future__ import annotations

import ast
import importlib
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from checkpoint_control.code.archive import fetch_uri
from checkpoint_control.code.trees import code_folder
from checkpoint_control.validation.report import Findings
from checkpoint_protocol.code import archives
from checkpoint_protocol.code.archives import ArchiveRefused
from checkpoint_protocol.errors import CheckpointError
from checkpoint_protocol.manifest.problems import closest
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.manifest.steps import Step
from checkpoint_protocol.places.settings import Settings
from checkpoint_protocol.store.object_store import local_path

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef
_AUDIT: Final = "spec.sink.audit"


def check_code(spec: Spec, settings: Settings | None, findings: Findings) -> None:
    """Check that a driver on this machine would find each step's callable, as far as the source tells.

    Without settings, code in an object store is not checked.
    """
    if spec.code.config_map is not None:
        return  # which a run refuses
    with tempfile.TemporaryDirectory(prefix="checkpointed-write-") as unpacked:
        try:
            if spec.code.uri is None:
                folder = code_folder(spec)
            elif settings is None and local_path(spec.code.uri) is None:
                return
            else:
                folder = Path(unpacked)
                archives.unpack(fetch_uri(spec.code.uri, settings or Settings(), may_be_local=True).data, folder)
        except CheckpointError as error:
            findings.error("spec.code.uri" if spec.code.uri else "spec.code.path", error)
            return
        except ArchiveRefused as error:
            findings.problem("spec.code.uri", f"{spec.code.uri} cannot be used: {error}")
            return
        for place, step in spec.placed_steps():
            _check_step(f"spec.{place}", step, _Code(folder, spec.code.uri), findings)
        if spec.sink.audit is not None:
            _check_step(_AUDIT, Step(call=spec.sink.audit), _Code(folder, spec.code.uri), findings)


@dataclass(frozen=True, slots=True)
class _Code:
    """Where the code can be read; `uri` is where that was unpacked from."""

    folder: Path | None
    uri: str | None

    def title_of(self, origin: str) -> str:
        """Name a file as the user knows it."""
        if self.uri is None or self.folder is None or not Path(origin).is_relative_to(self.folder):
            return origin
        return self.uri if self.uri.endswith(".py") else f"{self.uri}/{Path(origin).relative_to(self.folder)}"


def _check_step(where: str, step: Step, code: _Code, findings: Findings) -> None:
    module_name, attribute = step.call.split(":")
    folder = code.folder
    found = _find_module(module_name, folder)
    if isinstance(found, str):
        place = "what spec.code names or in an installed package" if folder else "an installed package, or in spec.code.path"
        findings.problem(_at(where, "call"), f"there is no module {found!r} in {place}")
        return
    if found.origin is None or not found.origin.endswith(".py"):
        if found.loader is None:
            findings.problem(_at(where, "call"), f"{module_name!r} is a folder without __init__.py, and no module with code")
        return  # built in or compiled: nothing can be told without importing it
    title = code.title_of(found.origin)
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(Path(found.origin).read_bytes(), title)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        findings.problem(_at(where, "call"), f"{title}{line}: {message}")
        return
    except OSError as error:
        findings.problem(_at(where, "call"), f"{title} cannot be read: {error.strerror}")
        return
    definition = _find_definition(tree, attribute)
    if definition is None:
        _say_not_defined(where, title, attribute, tree, findings)
    elif isinstance(definition, _Definition):
        _check_definition(where, step, definition, findings)


def _at(where: str, field: str) -> str:
    """Return the field of the manifest: of a step it is one below it, an audit is one itself."""
    return where if where == _AUDIT else f"{where}.{field}"


def _find_module(name: str, folder: Path | None) -> ModuleSpec | str:
    """Return where a module lies, or the name of the first part that is nowhere. No package is imported on the way."""
    importlib.invalidate_caches()
    head, *rest = name.split(".")
    # As in the driver: what is built in, then the code folder, which is in front of PYTHONPATH and the installed packages.
    spec = BuiltinImporter.find_spec(head) or FrozenImporter.find_spec(head)
    if folder is not None:
        spec = spec or PathFinder.find_spec(head, [str(folder)])
    for finder in sys.meta_path:
        spec = spec or finder.find_spec(head, None)
    for part in rest:
        if spec is None:
            break
        head = f"{head}.{part}"
        inside = spec.submodule_search_locations
        spec = PathFinder.find_spec(head, list(inside)) if inside is not None else None
    return spec or head


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Give the statements that run when a module is imported, also those inside if, try and with."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(statement, _Definition):
                yield from _top_level(getattr(statement, name, ()))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _top_level(part.body)


def _names(statement: ast.stmt) -> Iterator[str]:
    """Give the names that a statement binds."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Import() | ast.ImportFrom():
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        case ast.Assign() | ast.AnnAssign():
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        case _:
            pass


def _find_definition(tree: ast.Module, name: str) -> ast.stmt | None:
    """Return the last statement that binds a name, as importing would have it."""
    return next((statement for statement in reversed(list(_top_level(tree.body))) if name in _names(statement)), None)


def _say_not_defined(where: str, origin: str, name: str, tree: ast.Module, findings: Findings) -> None:
    known = [known for statement in _top_level(tree.body) for known in _names(statement)]
    if "*" in known or "__getattr__" in known:
        findings.note(f"{_at(where, 'call')}: whether {origin} has {name!r} cannot be told without importing it")
        return
    meant = closest(name, known)
    hint = f"; did you mean {meant!r}?" if meant else ""
    findings.problem(_at(where, "call"), f"{origin} defines no {name!r}{hint}")


# --- the callable ---------------------------------------------------------------------------------------------------------


def _check_definition(where: str, step: Step, definition: _Definition, findings: Findings) -> None:
    """Compare what is called with how it is called. A decorator or a base class may change both, so then nothing is said."""
    if definition.decorator_list:
        return
    if isinstance(definition, _Function):
        _check_arguments(where, step, definition, findings)
        return
    for method in definition.body:
        if isinstance(method, ast.AsyncFunctionDef) and method.name == "__init__" and not method.decorator_list:
            findings.problem(
                _at(where, "call"),
                f"{definition.name}.__init__ is async, but is never awaited; move what waits to an async setup()",
            )
            return
    if definition.bases or definition.keywords:
        return
    methods = {item.name: item for item in definition.body if isinstance(item, _Function)}
    bound = {name for item in definition.body for name in _names(item)}
    if "__call__" not in bound:
        findings.problem(_at(where, "call"), f"the class {definition.name!r} has no __call__ method")
    if (made := methods.get("__init__")) is not None and not made.decorator_list:
        _check_arguments(where, step, made, findings)
    elif not bound & {"__init__", "__new__"}:
        for name in step.arguments:
            findings.problem(f"{where}.arguments.{name}", f"the class {definition.name!r} takes no arguments")


def _check_arguments(where: str, step: Step, function: ast.FunctionDef | ast.AsyncFunctionDef, findings: Findings) -> None:
    """Compare step.arguments with the parameters after the first, which is self or the rows."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    if not positional and given.vararg is None:
        given_to = "an audit is given the table" if where == _AUDIT else "a step is given its rows"
        findings.problem(_at(where, "call"), f"{function.name!r} takes no positional argument, and {given_to} as one")
        return
    by_name = [argument.arg for argument in given.args[0 if given.posonlyargs else 1 :]]
    required = by_name[: max(0, len(by_name) - len(given.defaults))]
    required += [argument.arg for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    known = {*by_name, *(argument.arg for argument in given.kwonlyargs)}
    for name in step.arguments:
        if name not in known and given.kwarg is None:
            meant = closest(name, known)
            hint = f"did you mean {meant!r}?" if meant else f"it takes: {', '.join(sorted(known)) or 'none'}"
            findings.problem(f"{where}.arguments.{name}", f"{step.call} takes no argument {name!r}; {hint}")
    for name in required:
        if name not in step.arguments:
            findings.problem(_at(where, "arguments"), f"{step.call} needs the argument {name!r}")
