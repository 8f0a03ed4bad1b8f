"""Random messages of Protobuf, read by the schema that they were written with, and by another one that came after it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.support.protobuf_files import file_of, value_of
from tests.support.schema_registry import Registry, serving
from tests.unit.formats.test_protobuf_values import Topic

ENUMS: Final = {"Color": ["RED", "BLUE"], "Size": ["S", "M", "L"]}
_SIGNED: Final = {f"{name}{bits}": bits for name in ("int", "sint", "sfixed") for bits in (32, 64)}
_UNSIGNED: Final = {f"{name}{bits}": bits for name in ("uint", "fixed") for bits in (32, 64)}
SCALARS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    **{name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _SIGNED.items()},
    **{name: st.integers(0, (1 << bits) - 1) for name, bits in _UNSIGNED.items()},
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "bool": st.booleans(),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.binary(max_size=5),
    **{name: st.sampled_from(values) for name, values in ENUMS.items()},
}
LABELS: Final = ("", "optional", "repeated", "map")


@dataclass(frozen=True)
class Kind:
    """The type of a field: of a scalar or enum its name, of a message its fields by number."""

    name: str
    label: str
    fields: Mapping[int, tuple[str, Kind]] = field(default_factory=dict)

    @property
    def has_presence(self) -> bool:
        return self.label == "optional" or (bool(self.fields) and not self.label)

    @property
    def default(self) -> Any:
        """The value of a field that is not there."""
        if self.label in ("repeated", "map"):
            return []
        return None if self.has_presence else self.zero

    @property
    def zero(self) -> Any:
        if self.name in ENUMS:
            return ENUMS[self.name][0]
        return {"bool": False, "string": "", "bytes": b""}.get(self.name, 0)


@st.composite
def kinds(draw: st.DrawFn, depth: int) -> Kind:
    label = draw(st.sampled_from(LABELS))
    if depth and draw(st.booleans()):
        return Kind("message", label.replace("optional", ""), draw(fields(depth - 1)))
    return Kind(draw(st.sampled_from(sorted(SCALARS))), label)


def fields(depth: int) -> st.SearchStrategy[dict[int, tuple[str, Kind]]]:
    numbers = st.dictionaries(st.integers(1, 40), kinds(depth), min_size=1, max_size=4)
    return numbers.map(lambda found: {number: (f"f{number}", kind) for number, kind in found.items()})


@st.composite
def changed(draw: st.DrawFn, before: Mapping[int, tuple[str, Kind]]) -> dict[int, tuple[str, Kind]]:
    """Return the fields as another author has them: some are gone, renamed, or of another type, and others are new."""
    after = {}
    for number, (name, kind) in before.items():
        what = draw(st.sampled_from(["same", "same", "name", "label", "type", "below", "gone"]))
        if what == "name":
            name = f"{name}_renamed"
        elif what == "label":
            kind = Kind(kind.name, draw(st.sampled_from(LABELS if not kind.fields else ("", "repeated", "map"))), kind.fields)
        elif what == "type":
            kind = draw(kinds(1))
        elif what == "below" and kind.fields:
            kind = Kind(kind.name, kind.label, draw(changed(kind.fields)))
        if what != "gone":
            after[number] = (name, kind)
    new = {number: each for number, each in draw(fields(1)).items() if number not in before}
    return {**after, **new} or {1: ("f1", Kind("int32", ""))}


@st.composite
def messages(draw: st.DrawFn, of: Mapping[int, tuple[str, Kind]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a message as JSON says it, and as a row."""
    said: dict[str, Any] = {}
    row: dict[str, Any] = {}
    for name, kind in of.values():
        row[name] = kind.default
        if not draw(st.booleans()):
            continue
        if kind.label == "repeated":
            pairs = draw(st.lists(values(kind), max_size=3))
            said[name], row[name] = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        elif kind.label == "map":
            by_key = draw(st.dictionaries(SCALARS["string"], values(kind), max_size=3))
            said[name] = {key: pair[0] for key, pair in by_key.items()}
            row[name] = [(key, pair[1]) for key, pair in sorted(by_key.items())]
        else:
            said[name], row[name] = draw(values(kind))
    return said, row


def values(kind: Kind) -> st.SearchStrategy[tuple[Any, Any]]:
    if kind.fields:
        return messages(kind.fields)
    return SCALARS[kind.name].map(lambda value: (base64.b64encode(value).decode() if kind.name == "bytes" else value, value))


def file_with(of: Mapping[int, tuple[str, Kind]]) -> FileDescriptorProto:
    made: dict[str, dict[str, tuple[int, str]]] = {}

    def add(name: str, of: Mapping[int, tuple[str, Kind]]) -> None:
        made[name] = {}
        for number, (inner, kind) in of.items():
            if kind.fields:
                add(f"{name}_{number}", kind.fields)
            made[name][inner] = (number, f"{kind.label} {f'{name}_{number}' if kind.fields else kind.name}".strip())

    add("Order", of)
    return file_of(made, enums=ENUMS)


def carried(row: Mapping[str, Any], then: Mapping[int, tuple[str, Kind]], now: Mapping[int, tuple[str, Kind]]) -> dict[str, Any]:
    """Return what a row is where its fields have become others, if no value of it is to change."""
    found = {}
    for number, (name, kind) in now.items():
        if number not in then:
            found[name] = kind.default
            continue
        old_name, old = then[number]
        value = row[old_name]
        if old.label == "map":
            found[name] = [(key, one(each, old, kind)) for key, each in value]
        elif old.label == "repeated":
            found[name] = [one(each, old, kind) for each in value]
        elif kind.label == "repeated":
            found[name] = [] if value is None else [one(value, old, kind)]
        else:
            found[name] = None if value is None else one(value, old, kind)
    return found


def one(value: Any, then: Kind, now: Kind) -> Any:
    if isinstance(value, dict) and now.fields:
        return carried(value, then.fields, now.fields)
    return value.encode() if now.name == "bytes" and isinstance(value, str) else value


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_message_is_a_row_of_the_same_values_by_its_own_schema_and_by_a_later_one_or_it_is_refused(
    data: st.DataObject,
) -> None:
    then = data.draw(fields(3))
    now = data.draw(changed(then))
    said = data.draw(st.lists(messages(then), min_size=1, max_size=3))
    with serving(Registry()) as served:
        file = file_with(then)
        topic = Topic(served, file)
        given = [value_of(topic.newest, file, each) for each, _ in said]
        assert topic.rows(given) == [row for _, row in said]

        topic.newest = topic.register(file_with(now))
        asked = [name for name, _ in now.values()]

        for found, (_, row) in zip(topic.rows(given, asked), said, strict=True):
            event("refused" if isinstance(found, str) else "read")
            assert isinstance(found, str) or found == carried(row, then, now)
