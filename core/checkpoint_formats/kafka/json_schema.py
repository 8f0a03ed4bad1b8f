"""JSON Schemas as columns: of each property of an object the type that its values have, as far as a column can hold them. Pure.

Source of the rules: JSON Schema (draft 4 and later): type, properties, items, $ref, anyOf, oneOf, allOf. What only narrows values
down (format, minimum, required) is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from checkpoint_formats.kafka.no_column import DEEPEST, NoColumn, refuse_too_many

_KINDS: Final = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array"}
_WAY_OUT: Final = "name a type that holds all of them by source.kafka.types (string holds any value, as its JSON text)"
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
}


def columns_of(
    text: str, references: Mapping[str, str], given: Mapping[str, pa.DataType], chosen: Collection[str] | None = None
) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a schema, or those that are chosen, and the names of all its properties.

    `references`: the texts that it refers to, by their names. `given`: the types of some columns, which count in any case.
    NoColumn if it is no schema of objects with properties, or a property has no type; ValueError if it is no JSON.
    """
    try:
        documents = {name: json.loads(each) for name, each in {**references, "": text}.items()}
        return _Parsing(documents).columns(given, chosen)
    except RecursionError as error:
        raise NoColumn(f"the schema is more than {DEEPEST} levels deep") from error


@dataclass(frozen=True, slots=True)
class _At:
    """A part of a schema, and the document that it is in. `depth`: how many parts lead to it."""

    node: Any
    document: str
    path: str
    depth: int = 0

    def below(self, node: Any, name: str = "") -> _At:
        return _At(node, self.document, f"{self.path}.{name}".strip(".") if name else self.path, self.depth + 1)


@dataclass(slots=True)
class _Parsing:
    documents: Mapping[str, Any]
    _types: int = 0

    def columns(self, given: Mapping[str, pa.DataType], chosen: Collection[str] | None) -> tuple[pa.Schema, tuple[str, ...]]:
        root = self._resolved(_At(self.documents[""], "", ""))
        properties = self._properties(root)
        if not properties:
            raise NoColumn("the schema is not one of objects with properties, which would be the columns")
        asked = [name for name in properties if chosen is None or name in chosen]
        fields = [(name, given[name] if name in given else self._column(root.below(properties[name], name))) for name in asked]
        return pa.schema(fields), tuple(properties)

    def _column(self, at: _At) -> pa.DataType:
        try:
            return self._type_of(at)
        except RecursionError as error:
            raise NoColumn(f"{at.path}: it is more than {DEEPEST} levels deep, or refers to itself; {_WAY_OUT}") from error

    def _properties(self, at: _At) -> Mapping[str, Any]:
        properties = at.node.get("properties", {})
        if not isinstance(properties, dict):
            raise NoColumn(f"{at.path}: its properties are no object")
        return properties

    def _resolved(self, at: _At) -> _At:
        """Return what a part refers to, or the only one of the alternatives that is not null."""
        self._types += 1
        refuse_too_many(self._types, at.path)
        if at.depth > DEEPEST:
            raise RecursionError
        if not isinstance(at.node, dict):
            if at.node is True:
                return _At({}, at.document, at.path, at.depth)
            raise NoColumn(f"{at.path}: a schema is expected, and {json.dumps(at.node):.100} is none".strip(": "))
        if (reference := at.node.get("$ref")) is not None:
            return self._resolved(self._referred(at, reference))
        for word in ("allOf", "anyOf", "oneOf"):
            if (alternatives := at.node.get(word)) is None:
                continue
            if not isinstance(alternatives, list):
                raise NoColumn(f"{at.path}: its {word} is no list".strip(": "))
            if (found := self._of_alternatives(at, [self._resolved(at.below(each)) for each in alternatives], word)) is not None:
                return found
        return at

    def _of_alternatives(self, at: _At, alternatives: Sequence[_At], word: str) -> _At | None:
        """Return the part that has the type of all alternatives; None if they only narrow down what the part says itself."""
        anything = _At({}, at.document, at.path, at.depth)
        others = [one for one in alternatives if not _is_null(one.node)]
        typed = [one for one in others if _kinds(one.node)]
        if at.node.get("properties"):
            return anything if any(one.node.get("properties") for one in typed) else None
        if not typed or _kinds(at.node) not in ([], ["object"]):
            return None
        if word != "allOf" and len(typed) < len(others):
            return anything
        return typed[0] if len(typed) == 1 else _At(_several(typed), at.document, at.path, at.depth)

    def _referred(self, at: _At, reference: Any) -> _At:
        name, _, pointer = reference.partition("#") if isinstance(reference, str) else ("", "", None)
        document = name or at.document
        if pointer is None or document not in self.documents or (pointer and not pointer.startswith("/")):
            raise NoColumn(f"{at.path}: it refers to {json.dumps(reference):.200}, which is not there".strip(": "))
        node = self.documents[document]
        for key in (unquote(part).replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
            if not isinstance(node, dict) or key not in node:
                raise NoColumn(f"{at.path}: it refers to {reference!r:.200}, which is not there".strip(": "))
            node = node[key]
        return _At(node, document, at.path, at.depth + 1)

    def _type_of(self, at: _At) -> pa.DataType:
        at = self._resolved(at)
        match _kinds(at.node):
            case [kind] if kind in _PLAIN:
                return _PLAIN[kind]
            case ["integer", "number"] | ["number", "integer"]:
                return pa.float64()
            case ["object"] if properties := self._properties(at):
                return pa.struct([(name, self._type_of(at.below(node, name))) for name, node in properties.items()])
            case ["array"] if isinstance(at.node.get("items"), dict):
                return pa.list_(self._type_of(at.below(at.node["items"], "[]")))
            case _:
                raise NoColumn(f"{at.path}: its values may have several types; {_WAY_OUT}")


def _kinds(node: Mapping[str, Any]) -> list[str]:
    """Return the types that values may have besides null; none where the schema does not say it."""
    said = node.get("type")
    if said is None and (values := node.get("enum", [node["const"]] if "const" in node else None)) is not None:
        said = sorted({_KINDS.get(type(value), "object") for value in values}) if isinstance(values, list) else []
    if said is None:
        return ["object"] if "properties" in node else ["array"] if "items" in node else []
    return [kind for kind in (said if isinstance(said, list) else [said]) if kind != "null"]


def _is_null(node: Mapping[str, Any]) -> bool:
    return node.get("type") in ("null", ["null"])


def _several(alternatives: Sequence[_At]) -> Mapping[str, Any]:
    """Return a schema of values of one of several: of their type, where all are plain and have the same."""
    kinds = {kind for one in alternatives for kind in _kinds(one.node) or [""]}
    return {"type": sorted(kinds)} if kinds <= _PLAIN.keys() else {}
