"""YAML that people write, read by the core schema of YAML 1.2: yes, on, 12:30:45, 1_000 and 2026-01-05 are texts.

PyYAML reads YAML 1.1. Of that only the merge of mappings (`<<`) is kept. PyYAML takes the text apart, and what its values are is
decided here: PyYAML's own constructors end with a KeyError or an AttributeError at some of them.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import yaml

from checkpoint_protocol.manifest.spec import MOST_DEPTH

_MOST_MERGED: Final = 100_000
_SHOWN: Final = 64

_NULL: Final = "tag:yaml.org,2002:null"
_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_STRING: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"

_DIGITS: Final = {"0o": 8, "0x": 16}


def parse_documents(text: str) -> list[Any]:
    """Return the documents of a text, without those that are empty. YAMLError tells the place of what is wrong.

    A key is a text, as in JSON: on and 1.50 are kept as they are written. One that stands twice in a mapping is an error, because
    one of its values would be lost.
    """
    return [document for document in yaml.load_all(text, _Loader) if document is not None]


def parse_document(text: str) -> Any:
    """Return the only document of a text, as `parse_documents` does; None if there is none."""
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def parse_nodes(text: str) -> yaml.Node | None:
    """Return the first document of a text that `parse_documents` has read, with the places of what is in it."""
    return next((node for node in yaml.compose_all(text, _Loader) if node.tag != _NULL), None)


def line_of(node: yaml.Node | None, path: str) -> int | None:
    """Return the line of a field by its path, such as spec.steps.0.call.

    Of a field that is not written: the line of what it belongs in. None if nothing of the path is there.
    """
    line = None
    while path and isinstance(node, yaml.CollectionNode):
        if isinstance(node, yaml.MappingNode):
            entries = [(key.value, key.start_mark.line, value) for key, value in node.value]
        else:
            entries = [(str(number), item.start_mark.line, item) for number, item in enumerate(node.value)]
        # Names may have points in them: the longest one is meant.
        found = max((one for one in entries if f"{path}.".startswith(f"{one[0]}.")), key=lambda one: len(one[0]), default=None)
        if found is None:
            break
        name, at, node = found
        line, path = at + 1, path[len(name) + 1 :]
    return line


class _Loader(yaml.SafeLoader):
    """Refuses what is nested deeper than a manifest may be, where the library itself runs into Python's bound on recursion;
    merges (`<<`) of merges, which may stand for any number of values; and values that their tag does not allow.
    """

    yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - of the library
    _depth = 0
    _merged = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        # The innermost value is one more.
        if self._depth > MOST_DEPTH + 1:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"it is nested more than {MOST_DEPTH} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here, and not where values are made: there, what is merged stands beside what overrides it.
        node = super().compose_mapping_node(anchor)
        node.value = [(_as_text(key), value) for key, value in node.value]
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is no text", problem_mark=key.start_mark)
            if key.value in lines:
                problem = (
                    f"the key {key.value[:_SHOWN]!r} stands twice in one mapping, first in line {lines[key.value]}; remove one"
                )
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Called for each mapping that is merged, before what it has is copied.
        super().flatten_mapping(node)
        self._merged += len(node.value)
        if self._merged > _MOST_MERGED:
            raise yaml.MarkedYAMLError(problem="it merges too many values (<<)", problem_mark=node.start_mark)

    def construct_plain(self, node: yaml.Node) -> Any:
        """Make the value of a scalar that is no text, whether its tag is written or follows from its form."""
        text = str(self.construct_scalar(node)) if isinstance(node, yaml.ScalarNode) else ""
        if not isinstance(node, yaml.ScalarNode) or not _FORMS[node.tag].fullmatch(text):
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(problem=f"{str(node.value)[:_SHOWN]!r} is no {kind}", problem_mark=node.start_mark)
        try:
            return _value(node.tag, text)
        except ValueError as error:  # more digits than Python reads
            problem = f"{text[:_SHOWN]!r} is no value here: {error}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    yaml_constructors: ClassVar[Any] = {
        **dict.fromkeys((_NULL, _BOOL, _INT, _FLOAT), construct_plain),
        **dict.fromkeys((_STRING, _MERGE), yaml.SafeLoader.construct_yaml_str),
        "tag:yaml.org,2002:seq": yaml.SafeLoader.construct_yaml_seq,
        "tag:yaml.org,2002:map": yaml.SafeLoader.construct_yaml_map,
        None: yaml.SafeLoader.construct_undefined,
    }


def _as_text(key: yaml.Node) -> yaml.Node:
    if not isinstance(key, yaml.ScalarNode) or (key.tag == _MERGE and key.style is None):
        return key
    # Another node: with an anchor, this one may be a value elsewhere.
    return yaml.ScalarNode(_STRING, key.value, key.start_mark, key.end_mark, key.style)


def _value(tag: str, text: str) -> Any:
    if tag == _NULL:
        return None
    if tag == _BOOL:
        return text.lower() == "true"
    if tag == _INT:
        return int(text[2:], _DIGITS[text[:2]]) if text[:2] in _DIGITS else int(text)
    return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))


#: https://yaml.org/spec/1.2.2/#1032-tag-resolution. In this order, and each with the characters that it may begin with.
_FORMS: Final = {
    _NULL: re.compile(r"|~|null|Null|NULL"),
    _BOOL: re.compile(r"true|True|TRUE|false|False|FALSE"),
    _INT: re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    _FLOAT: re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    ),
    _MERGE: re.compile(r"<<"),
}
for _tag, _form in _FORMS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_form.pattern})\Z"), None)
