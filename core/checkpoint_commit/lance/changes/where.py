"""The rows of a Lance dataset for which `sink.where` is true, by their places in their fragments.

They are judged by the same module that judges the output's rows (`checkpoint_formats.rows.where`), and not by Lance's SQL: what
NaN is equal to, and how fine a time is, would be another question there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from checkpoint_formats.rows.where import Filter
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable, one_line
from checkpoint_protocol.manifest.where import as_of_the_sink, columns_of, parse_where

#: A row's address has its place in the fragment in the lower half.
_PLACE: Final = np.uint64(0xFFFF_FFFF)
_ADDRESS: Final = "_rowaddr"


@dataclass(frozen=True, slots=True)
class Remainder:
    """A fragment, as Lance has it, without some of its rows. None: no row is left."""

    fragment: FragmentMetadata | None


@dataclass(frozen=True, slots=True)
class WhereRows:
    """The rows of a condition. Only its columns are read, one batch at a time."""

    title: str
    columns: Sequence[str]
    filter: Filter

    @classmethod
    def of(cls, title: str, where: str, schema: pa.Schema) -> WhereRows:
        """Bind a condition to the columns of a version. NeedsChange(ManifestInvalid) if it does not fit them."""
        with as_of_the_sink():
            condition = parse_where(where)
            return cls(title, columns_of(condition), Filter(condition, schema))

    def has_any(self, fragment: Any) -> bool:
        """Whether one of a fragment's rows is among them."""
        return next(self._places(fragment), None) is not None

    def without(self, fragment: Any) -> Remainder | None:
        """Return what is left of a fragment without these rows; None if it has none of them.

        Puts an object that says which rows are deleted: nothing names it until the commit.
        """
        places = list(self._places(fragment))
        if not places:
            return None
        try:
            return Remainder(fragment.delete_rows(np.concatenate(places).tolist()))
        except (ValueError, OSError) as error:
            raise self._unreadable(fragment, error) from error

    def _places(self, fragment: Any) -> Iterator[np.ndarray[Any, Any]]:
        """Give the places of these rows, those of a batch at a time; none is empty. Rows that are deleted have none."""
        try:
            for batch in fragment.scanner(columns=list(self.columns), with_row_address=True).to_batches():
                taken = self.filter.take(batch)
                if len(taken):
                    yield batch.column(_ADDRESS).take(taken).to_numpy() & _PLACE
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self._unreadable(fragment, error) from error

    def _unreadable(self, fragment: Any, error: Exception) -> Retryable:
        return Retryable(
            reasons.STORE_UNAVAILABLE,
            f"the rows of sink.where in fragment {fragment.fragment_id} of {self.title} cannot be found: {one_line(error)}",
        )
