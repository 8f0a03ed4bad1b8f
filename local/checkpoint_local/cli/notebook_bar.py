"""The bar of a run in a notebook: it has what `Display` uses of Rich's Progress, which has none without ipywidgets."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from rich.progress import TaskID


@dataclass(slots=True)
class NotebookBar:
    """One line and a bar below the cell, drawn anew in its place; it is gone at the end."""

    _handle: Any = None

    def add_task(self, description: str, total: float | None) -> TaskID:
        self._draw(description, total, 0)
        return TaskID(0)

    def update(self, task: TaskID, *, description: str, total: float | None, completed: float) -> None:
        self._draw(description, total, completed)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.update(_html(""))

    def _draw(self, description: str, total: float | None, completed: float) -> None:
        share = f' value="{completed:g}" max="{total:g}"' if total else ""
        drawn = _html(f"<progress{share}></progress> <code>{escape(description)}</code>")
        if self._handle is None:
            from IPython.display import display  # the kernel's; who has no notebook has no IPython

            self._handle = display(drawn, display_id=True)
        else:
            self._handle.update(drawn)


def _html(text: str) -> Any:
    from IPython.display import HTML

    return HTML(text)
