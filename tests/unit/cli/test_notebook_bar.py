"""The bar of a run in a notebook: drawn in its place, without a share where that is not known, and gone at the end."""

from __future__ import annotations

from typing import Any

from checkpoint_local.cli.notebook_bar import NotebookBar


class _Cell:
    """The output of a cell, which is drawn anew."""

    def __init__(self) -> None:
        self.drawn: list[str] = []

    def update(self, html: Any) -> None:
        self.drawn.append(html.data)


def test_it_is_drawn_anew_in_its_place_and_is_gone_at_the_end() -> None:
    cell = _Cell()
    bar = NotebookBar(cell)
    task = bar.add_task("starting", total=None)
    bar.update(task, description="<b> 3/4 tasks", total=4, completed=3)
    bar.stop()

    assert cell.drawn == [
        "<progress></progress> <code>starting</code>",
        '<progress value="3" max="4"></progress> <code>&lt;b&gt; 3/4 tasks</code>',
        "",
    ]
    NotebookBar().stop()
