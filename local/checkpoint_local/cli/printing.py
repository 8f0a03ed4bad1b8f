"""How answers are printed: tables, JSON, YAML, and the line of progress. Answers go to stdout, messages to stderr."""

from __future__ import annotations

import datetime
import decimal
import sys
from typing import Any, Final

import click
import yaml
from pydantic import BaseModel, JsonValue
from rich.console import Console
from rich.table import Table
from rich.text import Text

from checkpoint_control.progress.epoch_progress import Progress
from checkpoint_protocol.manifest.quantities import counted
from checkpoint_protocol.printable import printable, printable_json

_WIDTH_OF_A_PIPE: Final = 200
_MOST_OF_A_VALUE: Final = 60
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class PrintableConsole(Console):
    """A console on which text of others cannot steer the terminal: every text, in tables and rules too, comes through here.

    To be made with emoji=False: Rich takes a part such as `:one:` of `steps:one: ValueError` for an emoji otherwise.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def answers() -> Console:
    """Return the console for answers; wide enough where it is no terminal, so that nothing is cut off."""
    console = PrintableConsole(file=sys.stdout, highlight=False, soft_wrap=True, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_PIPE
    return console


def messages() -> Console:
    return PrintableConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say_problem(console: Console, text: str) -> None:
    console.print(text, style="red", markup=False, soft_wrap=True)


def print_data(answer: BaseModel, output: str) -> None:
    """Print a model as JSON or YAML, in its camelCase names."""
    if output == "json":
        click.echo(printable_json(answer.model_dump_json(by_alias=True, indent=2)))
    else:
        plain = answer.model_dump(mode="json", by_alias=True)
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        if printable(text) != text:  # YAML escapes what is not ASCII, or nothing of it
            text = yaml.safe_dump(plain, sort_keys=False)
        click.echo(text, nl=False)


def plain_table(*columns: str) -> Table:
    """Return a table without lines; columns whose title starts with > are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns:
        table.add_column(title.removeprefix(">"), justify="right" if title.startswith(">") else "left", overflow="fold")
    return table


def cell(value: Any) -> str:
    """Return a value of a row for a table, cut where it is long."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        value = value[:_MOST_OF_A_VALUE].hex()
    text = printable(value if isinstance(value, str) else str(value))
    return text if len(text) <= _MOST_OF_A_VALUE else f"{text[: _MOST_OF_A_VALUE - 1]}…"


def as_json(value: Any) -> JsonValue:
    """Return a value of a row as JSON has it: bytes as hexadecimal digits, and as text what JSON does not know."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case list() | tuple():
            return [as_json(item) for item in value]
        case dict():
            return {str(name): as_json(item) for name, item in value.items()}
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return str(value)


def size_text(size_bytes: int) -> str:
    """Return a size for people: 1536 is 1.5 KiB."""
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size_bytes} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def of_what(table: str | None, stage: str | None) -> str:
    """Say of files that are read which table they are of, or that they are the result of a stage."""
    return f" of {table}" if table else f" of the stage {stage}" if stage else ""


#: The time at the end of the line, and the space before it.
TIME_COLUMNS: Final = 9
#: With a bar, which only a wide terminal has room for.
BAR_COLUMNS: Final = 20
BAR_FROM_WIDTH: Final = 100


def progress_line(counts: Progress, name: str, phase: str, rows_per_second: float, columns: int) -> str:
    """Return the longest of some texts that has at most so many columns; the shortest where none has."""
    attempt = f"attempt {counts.attempt}"
    tasks = [] if counts.tasks is None else [f"{counts.tasks_done:,}/{counts.tasks:,} tasks"]
    rows, rate = f"{counted(counts.rows_read, 'row')} sealed", f"{rows_per_second:,.0f} rows/s"
    texts = [
        "  ".join(parts)
        for parts in (
            [f"{name}, {attempt}{phase}", *tasks, rows, rate],
            [f"{name}, {attempt}{phase}", *tasks, rows],
            [f"{attempt}{phase}", *tasks, rows],
            [attempt, *tasks, rows],
            [*tasks, rows],
        )
    ]
    return next((text for text in texts if len(text) <= columns), texts[-1])
