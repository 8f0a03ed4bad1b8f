"""A step's callable: imported, made of its class once a process, given its arguments."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange
from checkpoint_protocol.manifest.steps import Step
from checkpoint_work.process.settings import loggable
from checkpoint_work.steps.annotations import output_of, receiver_of
from checkpoint_work.steps.calling import event_loop
from checkpoint_work.steps.calling.event_loop import awaited, is_async
from checkpoint_work.steps.failing.failures import cause_of

_Callable = Callable[..., Any]
#: So long an async close() may take.
_CLOSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a step calls with its rows. `is_async`: what it gives has to be awaited. `output`: what its annotation declares."""

    function: _Callable
    is_async: bool
    output: dict[str, str] | None = None


_instances: dict[str, Loaded] = {}
#: What is to be closed, in the order in which it was made: what it is known by, the label of its step, and the instance.
_to_close: list[tuple[str, str, Any]] = []
_instances_lock = threading.Lock()


def load(step: Step) -> Loaded:
    """Return the step's callable; for a class the process's one instance. NeedsChange if it cannot be had."""
    with _instances_lock:
        identity = step.result_json
        if identity not in _instances:
            _instances[identity] = _make(step)
        return _instances[identity]


@contextmanager
def closing_steps() -> Iterator[None]:
    """Call close() of what is made in the body and has one, after it, the last first. Such a class is made anew the next time.

    What it raises goes to the log: the rows are sealed by then, or the task has failed for another reason.
    """
    try:
        yield
    finally:
        while _to_close:
            identity, label, instance = _to_close.pop()
            with _instances_lock:
                _instances.pop(identity, None)
            try:
                # In this thread, as the step was made: a connection may belong to it.
                if inspect.isawaitable(closing := instance.close()):
                    event_loop.run(awaited(closing), _CLOSE_S)
            except BaseException as error:  # user code: see code_failed
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                sys.stderr.write(f"{loggable(f'step {label!r}: close() raised {why}')}\n")


def _make(step: Step) -> Loaded:
    module_name, attribute = step.call.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"step {step.label!r}: there is no module {error.name!r}; put it where spec.code says (code.path, code.uri or "
            "code.configMap), or install its package",
        ) from error
    except BaseException as error:  # user code: see code_failed
        raise NeedsChange(
            reasons.CODE_FAILED, f"step {step.label!r}: importing {module_name!r} raised {cause_of(error, step)}"
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise NeedsChange(
            reasons.CODE_MISSING,
            f"step {step.label!r}: module {module_name!r} has no callable {attribute!r} ({getattr(module, '__file__', None)})",
        )
    try:
        if inspect.isclass(found):
            instance = found(**step.arguments)
            if hasattr(instance, "setup") and inspect.isawaitable(made := instance.setup()):
                event_loop.run(awaited(made))
            if not callable(instance):
                raise TypeError(f"{attribute} has no __call__ method")
            if callable(getattr(instance, "close", None)):
                _to_close.append((step.result_json, step.label, instance))
            return _loaded(step, instance, instance)
    except CheckpointError:
        raise
    except BaseException as error:
        raise NeedsChange(
            reasons.CODE_FAILED, f"step {step.label!r}: making {attribute} raised {cause_of(error, step)}"
        ) from error
    return _loaded(step, found, partial(_with_arguments, found, step.arguments) if step.arguments else found)


def _loaded(step: Step, called: Any, function: _Callable) -> Loaded:
    if step.input != "row":
        return Loaded(function, is_async(called))
    receive = receiver_of(called)
    return Loaded(
        function if receive is None else partial(_with_received, function, receive), is_async(called), output_of(called)
    )


def _with_received(function: _Callable, receive: _Callable, row: dict[str, Any]) -> Any:
    return function(receive(row))


def _with_arguments(function: Callable[..., Any], arguments: dict[str, Any], rows: Any) -> Any:
    # The rows come first, also where an argument has the name of the first parameter.
    return function(rows, **arguments)
