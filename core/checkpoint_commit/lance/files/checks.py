"""What a seal may say of a Lance fragment: checked before anything is claimed, as Lance believes it.

A fragment that Lance cannot take is refused at each try, or lands and makes readers of the whole dataset fail.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from checkpoint_protocol.records import LanceDataFile, LanceField, LanceFragment, LanceTarget

#: A row's address has 32 bits for its place in the fragment.
_MOST_ROWS: Final = 1 << 32
#: Lance's name for its first file format, and what it writes for it into files. They have no indices of columns.
_FIRST, _FIRST_IN_FILES = "0.1", (0, 2)


@dataclass(slots=True)
class FragmentChecks:
    """For fragments that were staged for one of these targets."""

    targets: Sequence[LanceTarget]
    _fits: dict[tuple[tuple[int, ...], int, int], bool] = field(default_factory=dict)

    def problem_of(self, fragment: LanceFragment) -> str | None:
        """Name what a staged fragment says and cannot be so; None if all of it can."""
        if not fragment.files:  # Lance would make rows of NULL out of it
            return f"it has {fragment.rows} rows without a data file"
        if not 0 < fragment.rows < _MOST_ROWS:
            return f"it has {fragment.rows} rows"
        for file in fragment.files:
            if not file.size_bytes:
                return "it has no bytes"
            if file.column_indices != (() if is_of_first_format(file) else tuple(range(len(file.fields)))):
                return f"its columns are not numbered one after the other: {_some(file.column_indices)}"
        field_ids = tuple(field_id for file in fragment.files for field_id in file.fields)
        if not all(self._is_written_for(file, field_ids) for file in fragment.files):
            versions = sorted({f"{file.major_version}.{file.minor_version}" for file in fragment.files})
            return (
                f"it has the fields {_some(field_ids)} in file format {', '.join(versions)}, and no attempt was told to write "
                "these, each once, in this order and in that format"
            )
        return None

    def _is_written_for(self, file: LanceDataFile, field_ids: tuple[int, ...]) -> bool:
        key = (field_ids, file.major_version, file.minor_version)
        if key not in self._fits:
            version = (file.major_version, file.minor_version)
            self._fits[key] = len(set(field_ids)) == len(field_ids) and any(
                version == _version_in_files(target.storage_version) and _has_every_column(target.fields, field_ids)
                for target in self.targets
            )
        return self._fits[key]


def is_of_first_format(file: LanceDataFile) -> bool:
    """Whether a file is in the format whose footers tell no rows; by its seal, which is checked against the dataset."""
    return (file.major_version, file.minor_version) == _FIRST_IN_FILES


def _version_in_files(storage_version: str) -> tuple[int, int]:
    if storage_version == _FIRST:
        return _FIRST_IN_FILES
    major, _, minor = storage_version.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (-1, -1)


def _has_every_column(fields: Sequence[LanceField], field_ids: Sequence[int]) -> bool:
    """Whether each column is there, and none else, in the order of the schema: by its own field, or one above that packs it."""
    written = set(field_ids)
    # Columns of a file are those of its fields one by one: in another order they are read as those of other fields.
    if tuple(field_ids) != tuple(each.id for each in fields if each.id in written):
        return False
    by_path = {each.path: each.id for each in fields}
    parents = {path.rpartition(".")[0] for path in by_path}
    return all(not written.isdisjoint(_with_those_above(path, by_path)) for path in by_path if path not in parents)


def _with_those_above(path: str, by_path: dict[str, int]) -> list[int]:
    found = []
    while path:
        found.append(by_path[path])
        path = path.rpartition(".")[0]
    return found


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, ..." if len(numbers) > 8 else shown or "none"
