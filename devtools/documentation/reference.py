"""The reference, in Markdown: each page is made of the models, the commands or the metrics, so that it says what they do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from pydantic import BaseModel

from checkpoint_control.decision.phases import MEANINGS
from checkpoint_control.views.reason_texts import reason_texts
from checkpoint_local.cli.main import main as command_line
from checkpoint_operator.crd.definition import custom_resource_definition
from checkpoint_operator.metrics.counters import Metrics
from checkpoint_protocol.places.kafka_settings import KafkaEntry, SchemaRegistryEntry
from checkpoint_protocol.places.settings import GlueCatalogSettings, RestCatalogSettings, SqlCatalogSettings
from checkpoint_protocol.places.storage import StorageEntry
from devtools.documentation.python_calls import python_page

ROOT: Final = Path(__file__).parents[2]
#: Kept in the repository, unlike the other pages: people read it there.
REASONS_PAGE: Final = ROOT / "docs" / "reference" / "reasons.md"
CHART: Final = ROOT / "charts" / "checkpointed-write-operator"
VALUES: Final = CHART / "values.yaml"


def pages() -> dict[str, str]:
    """Return the text of each generated page by its path below docs/."""
    makers: dict[str, Callable[[], str]] = {
        "manifest": lambda: _of_object("The manifest", "spec", "What `spec` of a `CheckpointedWrite` may have."),
        "status": lambda: _of_object("The status", "status", "What the operator writes into `status`."),
        "settings": _settings,
        "values": _values,
        "commands": _commands,
        "python": python_page,
        "phases": _phases,
        "metrics": _metrics,
    }
    made = {f"reference/{name}.md": make() for name, make in makers.items()}
    return made | {"guides/chart.md": (CHART / "README.md").read_text()}


def _of_object(title: str, part: str, beginning: str) -> str:
    root = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    cells = (
        (_anchored(path), _type(schema), "required" if needed else _default(schema), _cell(schema.get("description", "")))
        for path, schema, needed in _fields(root, "")
    )
    rows = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([f"# {title}", "", beginning, "", "| field | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def _anchored(name: str, prefix: str = "") -> str:
    """Return the cell of a field that links can lead to, which breaks behind its dots."""
    place = f"{prefix}{name}"
    return f'<a id="{place}" href="#{place}"><code>{name.replace(".", ".<wbr>")}</code></a>'


def _fields(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Give each field of an object's schema, before those inside of it."""
    for name, inner in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path, inner, name in schema.get("required", ())
        if inner.get("type") == "object":
            yield from _fields(inner, f"{path}.")
        elif inner.get("items", {}).get("type") == "object":
            yield from _fields(inner["items"], f"{path}[].")


def _type(schema: Mapping[str, Any]) -> str:
    if values := schema.get("enum"):
        return " or ".join(f"`{value}`" for value in values)
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(schema.get("type", "any"))
    return f"list of {_type(schema['items'])}" if kind == "array" else kind


def _default(schema: Mapping[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _cell(text: str) -> str:
    """Return text for a cell of a table: in one line, and with nothing that Markdown would take for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _settings() -> str:
    lines = [
        "# The settings",
        "",
        "Catalogs, storage and Kafka clusters, with their credentials: in a file on one machine, in the chart's value `settings`",
        "in a cluster.",
        "A secret is `{env: NAME}` or `{file: PATH}`.",
    ]
    sections: tuple[tuple[str, str, type[BaseModel]], ...] = (
        ("catalogs.sql", "`catalogs.NAME` with `type: sql`", SqlCatalogSettings),
        ("catalogs.rest", "`catalogs.NAME` with `type: rest`", RestCatalogSettings),
        ("catalogs.glue", "`catalogs.NAME` with `type: glue`", GlueCatalogSettings),
        ("storage", "An entry of `storage`", StorageEntry),
        ("kafka", "An entry of `kafka`", KafkaEntry),
        ("kafka.schema_registry", "`schema_registry` of an entry of `kafka`", SchemaRegistryEntry),
    )
    for section, title, model in sections:
        lines += ["", f"## {title}", "", "| field | meaning |", "|---|---|"]
        for name, field in model.model_fields.items():
            lines.append(f"| {_anchored(field.alias or name, f'{section}.')} | {_cell(field.description or '')} |")
    return "\n".join([*lines, ""])


def _values() -> str:
    return f"# Values of the chart\n\n```yaml\n{VALUES.read_text().rstrip()}\n```\n"


def _commands() -> str:
    lines = ["# Commands"]
    context = click.Context(command_line, info_name="checkpointed-write")
    assert isinstance(command_line, click.Group)
    for name, command in command_line.commands.items():
        with click.Context(command, info_name=name, parent=context) as inner:
            lines += ["", f"## {name}", "", "```text", command.get_help(inner).rstrip(), "```"]
    return "\n".join([*lines, ""])


def _phases() -> str:
    """Of `status.phase`, the column of kubectl, the command `status`, and the label of metrics."""
    lines = ["# Phases", "", "The status of an object, kubectl, the commands and the metrics say one of these.", ""]
    lines += ["| phase | meaning |", "|---|---|", *(f"| `{phase}` | {meaning} |" for phase, meaning in MEANINGS.items())]
    return "\n".join([*lines, ""])


def _metrics() -> str:
    metrics = Metrics()
    metrics.watch(lambda: 0, dict, dict, dict, lambda: (), dict)
    lines = ["# Metrics", "", "Of the operator, for Prometheus.", "", "| metric | type | meaning |", "|---|---|---|"]
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"| `{name}` | {family.type} | {_cell(family.documentation)} |")
    return "\n".join([*lines, ""])


def reasons_page() -> str:
    lines = ["<!-- made of reasons.yaml by: make docs -->", "", "# Reasons", ""]
    lines += ["Conditions, events, exit messages and metrics name one of these."]
    for subject, texts in itertools.groupby(reason_texts(), lambda text: text.subject):
        lines += ["", f"## {subject}"]
        for text in texts:
            said = (("Seen as", text.seen), ("Why", text.why), ("What to do", text.do))
            lines += ["", f"### {text.reason}", *(line for title, words in said for line in ("", f"**{title}.** {words}"))]
    return "\n".join([*lines, ""])
