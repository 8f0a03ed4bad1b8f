"""What the adapter to Lance datasets asks of a change: Lance's own operation on one version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from checkpoint_commit.lance.history import LanceHistory
from checkpoint_commit.outcomes import Rejected
from checkpoint_protocol.records import Operation


class LanceChange(Protocol):
    """A change as a Lance dataset takes it. `sizes`: those of the staged data files, by their names.

    `incompatibility`: why the staged files must not be committed, as far as it can be told from what the seals say.
    """

    @property
    def operation(self) -> Operation: ...

    @property
    def sizes(self) -> Mapping[str, int]: ...

    @property
    def incompatibility(self) -> Rejected | None: ...

    def __len__(self) -> int: ...

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        """Say what others have done to the dataset, up to this version of it, that the operation does not go with."""

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        """Return the operation on the version that it is to be based on, which is opened where it has to be known."""
