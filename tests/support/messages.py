"""The messages of the production code that tell a way out, found in its source text.

A message tells a way out where a clause of it begins with what somebody is to do: "..; leave it out", "..: add one to
..". What is filled in stands as {} in it. Descriptions of fields and options, rules of the CRD, and patterns are no
messages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = (
    "core/checkpoint_protocol",
    "core/checkpoint_formats",
    "core/checkpoint_work",
    "core/checkpoint_commit",
    "core/checkpoint_control",
    "spark_app/checkpoint_spark",
    "operator/checkpoint_operator",
    "local/checkpoint_local",
)

_TO_DO: Final = (
    "add|allow|annotate|apply|append|ask|bring|cast|change|check|choose|compute|convert|copy|correct|create|declare|delete|do|"
    "drop|edit|end|find|flatten|forget|free|give|go|have|install|keep|kill|leave|let|look|lower|make|mark|mend|move|name|open|"
    "partition|pass|pin|point|put|quote|raise|read|remove|rename|repair|repeat|replace|reset|restore|retry|rewrite|roll|round|"
    "run|say|see|select|set|show|shorten|sort|split|start|stop|switch|take|tell|turn|try|undo|unset|update|upgrade|use|wait|write"
)
#: Such words may be nouns, too.
_NOTHING_TO_DO: Final = r"(?: (?:of|is|are|has|was|by|under|does|needs|alone)\b|[.:=-])"
_WAY_OUT: Final = re.compile(rf"(?:^|[;:.(] ?|, |\bor |\band |\bthen )(?:{_TO_DO})\b(?!{_NOTHING_TO_DO})")
_NO_MESSAGE: Final = re.compile(r"\bself\.|^WHERE |^SET ")
_DESCRIBING: Final = frozenset({"description", "help", "epilog", "metavar"})
_CALLS_WITHOUT_MESSAGES: Final = frozenset({"Field", "add_parser", "add_argument", "compile", "Counter", "Gauge", "Histogram"})


@dataclass(frozen=True, slots=True, order=True)
class Message:
    module: str
    text: str


def messages_with_a_way_out() -> tuple[Message, ...]:
    """All of them, each once."""
    found = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = str(path.relative_to(ROOT / package.partition("/")[0]).with_suffix("")).replace("/", ".")
            for text in texts_in(ast.parse(path.read_text(encoding="utf-8"))):
                if tells_a_way_out(text):
                    found.add(Message(module, text))
    return tuple(sorted(found))


def tells_a_way_out(text: str) -> bool:
    return " " in text and _WAY_OUT.search(text) is not None and _NO_MESSAGE.search(text) is None


def texts_in(node: ast.AST) -> Iterator[str]:
    """Yield each text below a node, without docstrings and what describes fields and options."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
        return
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from texts_in(part.value)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Call) and _name(node.func) in _CALLS_WITHOUT_MESSAGES:
        return
    if isinstance(node, ast.keyword) and node.arg in _DESCRIBING:
        return
    for child in ast.iter_child_nodes(node):
        yield from texts_in(child)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
