"""Which keyword of which call sets which field of a manifest: each field has one, and each keyword sets one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from checkpoint_protocol.manifest.spec import Spec
from devtools.documentation.python_calls import CALLS, calls, document, leaves, python_page, set_by


@pytest.mark.parametrize(("call", "keyword"), calls())
def test_each_keyword_of_each_call_sets_a_field(call: str, keyword: str) -> None:
    assert set_by(call, keyword)


def fields_of(model: type[BaseModel], place: str) -> Iterator[str]:
    for field in model.model_fields.values():
        name = f"{place}.{field.alias}".lstrip(".")
        sections = list(sections_in(field.annotation))
        if not sections:
            yield name
        for section, in_list in sections:
            yield from fields_of(section, f"{name}[]" if in_list else name)


def sections_in(annotation: Any, in_list: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if get_origin(annotation) in (Annotated, Union, tuple) or type(annotation).__name__ == "UnionType":
        inside = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
        for one in inside:
            yield from sections_in(one, in_list or get_origin(annotation) is tuple)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, in_list


#: Fields of sections that Python gives as mappings, whose names are looked up in the models.
AS_MAPPINGS: Final = (
    "checkpoint.",
    "code.",
    "driver.",
    "executor.",
    "quarantine.",
    "reset.",
    "retry.",
    "rateLimit.",
    "trigger.",
    "source.program.stream.",
    "steps[].retry.",
    "steps[].rateLimit.",
    "stages[].steps[]",
    "source.union[]",
)


def test_each_field_of_a_spec_is_set_by_a_call() -> None:
    told = {place.removeprefix("spec.") for call, keyword in calls() for place in set_by(call, keyword)}
    told |= {place.removeprefix("spec.") for call in CALLS for place, _ in leaves(document(call))}

    wanted = {place for place in fields_of(Spec, "") if not place.startswith(AS_MAPPINGS)}
    assert {place for place in wanted if not any(one.startswith(place) for one in told)} == set()


@pytest.mark.parametrize(
    ("section", "given", "field", "value"),
    [
        ("checkpoint", {"maximum_rows": 7}, "checkpoint.maximumRows", "7"),
        ("trigger", {"at_least": {"or_after": "7s"}}, "trigger.atLeast.orAfter", "'7s'"),
        ("executor", {"gpu_resource": "a/b"}, "executor.gpuResource", "'a/b'"),
    ],
)
def test_fields_of_sections_have_the_names_of_python_at_any_depth(section: str, given: Any, field: str, value: str) -> None:
    assert (f"spec.{field}", value) in set(leaves(document("Write.options", **{section: given})))


def test_the_page_names_each_call_with_its_keywords() -> None:
    page = python_page()

    assert "| `vectors` | `sink.lance.layout.vectorColumns.v.dimension` |" in page
    assert all(f"## {call}\n" in page for call in CALLS)
