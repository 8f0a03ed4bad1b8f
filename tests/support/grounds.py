"""What `validate` is tested on: a write that is right, changes of it, and all that is said of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result

from checkpoint_commit.catalogs.named import open_catalog
from checkpoint_local.cli.main import main
from checkpoint_protocol.places.settings import Settings, SqlCatalogSettings
from tests.support.reading import files_source
from tests.support.writes import rows_of

#: Any code that `validate` imported would fail by it.
RAISES = "raise AssertionError('user code was imported')\n"


class Like(str):
    """A text in which ... stands for any other."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        pattern = ".*".join(map(re.escape, self.split("...")))
        return isinstance(other, str) and re.fullmatch(pattern, other, re.DOTALL) is not None


@dataclass(frozen=True)
class Look:
    """What is changed of a write, and what `validate` says then, each with ... for any text, and {folder} for the ground's:

    - all problems as `path: message`, and after them all notes as `note: text`
    - columns as `column name: type: why`; all of them, if any
    - fields of the prediction as `would.name: value`
    """

    says: str | tuple[str, ...] = ()
    #: YAML of fields by their path, without the outer braces; null takes a field out.
    spec: str = ""
    _: KW_ONLY
    #: Text and bytes as they are, tables as Parquet or as a Lance dataset.
    files: Mapping[str, str | bytes | pa.Table] = field(default_factory=dict)
    #: The source is this CSV or JSON, in the file `name`.
    text: str | bytes | None = None
    name: str = "rows.csv"
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The module `steps`, and the one step, of whatever module.
    code: str | None = None
    call: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: The columns of db.rows, where they are not those of the source.
    table: pa.Schema | None = None
    #: There is neither a table, nor a catalog, nor a checkpoint folder.
    bare: bool = False
    #: Does what else is to be done, at the end.
    prepare: Callable[[Ground], object] = lambda ground: None

    def __post_init__(self) -> None:
        if isinstance(self.says, str):
            object.__setattr__(self, "says", (self.says,) if self.says else ())


#: Scenarios by their names. Several looks are one after the other, each at what the one before left.
Scenarios = Mapping[str, Look | tuple[Look, ...]]


def each_of(*tables: Scenarios) -> pytest.MarkDecorator:
    """Give a test each scenario, with its name as the id."""
    named = {name: looks for table in tables for name, looks in table.items()}
    assert len(named) == sum(map(len, tables)), "two scenarios have one name"
    return pytest.mark.parametrize("looks", [each if isinstance(each, tuple) else (each,) for each in named.values()], ids=named)


class Ground:
    """A folder with an input, settings, Java, and a manifest that is right once there is the table db.rows of the catalog."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "in"
        for number in range(2):
            self.write(f"in/part-{number}.parquet", rows_of(range(number * 50, number * 50 + 50)))
        self.code = folder / "code"
        self.code.mkdir()
        self.settings = folder / "settings.yaml"
        self.document: dict[str, Any] = {
            "apiVersion": "checkpointed.dev/v1alpha1",
            "kind": "CheckpointedWrite",
            "metadata": {"name": "nightly"},
            "spec": {
                "source": {"files": {"format": "parquet", "paths": ["in"]}},
                "sink": {"iceberg": {"catalog": "lake", "table": "db.rows"}},
                "checkpoint": {"uri": "checkpoints"},
            },
        }
        self.settings.write_text(catalog_settings({"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse"}))
        java = self.write("java/bin/java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
        java.chmod(0o755)
        self.java_home = java.parents[1]

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.document["spec"]
        return spec

    @property
    def file(self) -> Path:
        return self.write("write.yaml", yaml.safe_dump(self.document))

    def write(self, name: str, content: str | bytes | pa.Table) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pa.Table):
            lance.write_dataset(content, str(file)) if file.suffix == ".lance" else pq.write_table(content, file)
        else:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def make_table(self, schema: pa.Schema | None = None, properties: dict[str, str] | None = None) -> None:
        entry = SqlCatalogSettings(uri=f"sqlite:///{self.folder}/catalog.db", warehouse=(self.folder / "warehouse").as_uri())
        catalog = open_catalog("lake", Settings(catalogs={"lake": entry}))
        catalog.create_namespace("db")
        catalog.create_table("db.rows", schema or rows_of([]).schema, properties=properties or {})
        catalog.close()

    def put(self, fields: str) -> None:
        for at, value in yaml.safe_load(f"{{{fields}}}").items():
            *way, last = at.split(".")
            section: Any = self.spec
            for name in way:
                section = section[int(name)] if isinstance(section, list) else section[name]
            if value is None:
                del section[last]
            else:
                section[last] = value

    def change(self, look: Look) -> None:
        if look.table is not None:
            self.make_table(look.table)
        for name, content in look.files.items():
            self.write(name, content)
        if look.text is not None:
            self.write(look.name, look.text)
            source = files_source("json" if "json" in look.name else "csv", [look.name], look.options)
            self.spec["source"] = source.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if look.code is not None:
            self.write("code/steps.py", f"{RAISES}{look.code}\n")
        if look.call is not None:
            self.spec.update({"code": {"path": "code"}, "steps": [{"call": look.call, "arguments": dict(look.arguments)}]})
        self.put(look.spec)
        look.prepare(self)

    def run(self, *arguments: str) -> Result:
        environment = {"JAVA_HOME": str(self.java_home), "XDG_CONFIG_HOME": "/nonexistent"}
        command = ["validate", str(self.file), "--settings", str(self.settings), *arguments]
        return CliRunner(env=environment).invoke(main, command, catch_exceptions=False)

    def report(self) -> dict[str, Any]:
        result = self.run("-o", "json")
        answer: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if answer["valid"] else 2)
        assert answer["valid"] == (not answer["problems"])
        return answer

    def see(self, *looks: Look) -> None:
        """Do each change, and see whether that is said of it, and nothing else."""
        if not looks[0].bare:
            (self.folder / "checkpoints").mkdir()
            if looks[0].table is None:
                self.make_table()
        for look in looks:
            self.change(look)
            said = list(self._said(look.says))
            expected = [Like(line.replace("{folder}", str(self.folder))) for line in look.says]
            assert said == expected, f"said is {said}, and not {expected}"

    def _said(self, asked: Sequence[str]) -> Iterator[str]:
        report = self.report()
        for problem in report["problems"]:
            yield f"{problem['path']}: {problem['message']}"
        for note in report["notes"]:
            yield f"note: {note}"
        if any(line.startswith("column ") for line in asked):
            types = self.spec["source"]["files"].get("types", {})
            for column in report["prediction"]["columns"]:
                yield f"column {column['column']}: {column['type']}: {column['why']}"
                assert column["inferred"] is (column["column"] not in types)
        for at in (line.partition(": ")[0] for line in asked if line.startswith("would")):
            value = report["prediction"]
            for name in at.split(".")[1:]:
                value = value[name]
            yield f"{at}: {value}"

    def everything(self) -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in self.folder.rglob("*")}


def catalog_settings(catalog: dict[str, Any]) -> str:
    """Return settings in which `lake` is this catalog."""
    return yaml.safe_dump({"catalogs": {"lake": catalog}})
