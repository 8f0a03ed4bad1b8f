"""Columns for rows that a Lance dataset has: what is staged for them, and the data files that are made of it.

Both are changes of the same operation. What an epoch stages cannot be committed as it is; a stage makes files of whole fragments
of it, and these are committed (`lance_added_commit`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import lance
import pyarrow as pa

from checkpoint_commit.footers import Footers
from checkpoint_commit.lance.files.checks import FragmentChecks
from checkpoint_commit.lance.history import LanceHistory
from checkpoint_commit.outcomes import Rejected
from checkpoint_formats.lance.columns_stager import staged_folder
from checkpoint_formats.rows.plain_types import decode_schema, encode_schema
from checkpoint_protocol import reasons
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.records import LanceColumnFile, LanceDataFile, LanceField, LanceFragment, LanceTarget, StagedColumns
from checkpoint_protocol.records.formats.operations import AddColumns

_DATA_FILE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*\.lance")


@dataclass(slots=True)
class LanceStagedColumns:
    """What an epoch has staged. A LanceChange that is never sent: it has no data files of the dataset."""

    operation: AddColumns
    files: int = 0
    incompatibility: Rejected | None = None

    @property
    def sizes(self) -> Mapping[str, int]:
        return {}

    def __len__(self) -> int:
        return self.files

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        return None

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        raise AssertionError("what is staged for columns is packed before it is committed")


def take_staged(uri: str, operation: AddColumns, key: EpochKey, files: Iterable[StagedColumns]) -> LanceStagedColumns:
    """Take the staged files of an epoch in: of each, nothing is kept. They must lie in the folder of the epoch."""
    taken, folder = LanceStagedColumns(operation), staged_folder(key)
    for file in files:
        taken.files += 1
        if not file.path.startswith(folder) or not _DATA_FILE.fullmatch(file.path.removeprefix(folder)):
            taken.incompatibility = taken.incompatibility or _refused(f"{file.path!r}, which is not a staged file of {uri}")
        elif sum(part.rows for part in file.parts) != file.rows:
            taken.incompatibility = taken.incompatibility or _refused(f"{file.path!r}, whose parts have not its rows")
    return taken


@dataclass(slots=True)
class LanceReplacement:
    """The files of the columns, one for each fragment. A LanceChange: one transaction puts them beside those that there are.

    Lance lands it after appends and deletes, and refuses it where rows of these fragments were moved or got other values for the
    columns: also by the same transaction, so that it lands once.
    """

    operation: AddColumns
    files: list[LanceColumnFile] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    incompatibility: Rejected | None = None

    def __len__(self) -> int:
        return len(self.files)

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        """None: where rows were moved, the files are made anew, and nobody has to be asked."""
        return None

    def find_moved(self, dataset: Any, ids: frozenset[int]) -> int | None:
        """Return a fragment that is not as its file was made for: gone, or with other values in the columns with these ids."""
        for file in self.files:
            there = dataset.get_fragment(file.fragment)
            if there is None or there.physical_rows != file.rows or not holds(there, file.beside, ids):
                return file.fragment
        return None

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        operations = lance.LanceOperation
        groups = [operations.DataReplacementGroup(file.fragment, _data_file(file.file)) for file in self.files]
        return operations.DataReplacement(groups)


def holds(fragment: Any, files: Sequence[str], ids: frozenset[int]) -> bool:
    """Whether a fragment still has some of these data files, and no other one has a column with one of the ids."""
    now = {file.path: file for file in fragment.data_files()}
    others = [file for path, file in now.items() if path not in files]
    return not now.keys().isdisjoint(files) and all(ids.isdisjoint(file.fields) for file in others)


def take_packed(
    uri: str, operation: AddColumns, targets: Sequence[LanceTarget], files: Iterable[LanceColumnFile], footers: Footers
) -> LanceReplacement:
    """Take the data files in that were made. What a seal says of one must be possible, and its footer must say so, too.

    `targets`: of the columns only, as `only_columns` gives them.
    """
    taken = LanceReplacement(operation)
    checks = FragmentChecks(targets)
    seen: set[int] = set()
    for file in files:
        problem = checks.problem_of(LanceFragment(files=(file.file,), rows=file.rows))
        if not _DATA_FILE.fullmatch(file.file.path):
            problem = "it is no data file"
        if file.fragment in seen:
            problem = f"fragment {file.fragment} has two files"
        if problem is not None:
            taken.incompatibility = taken.incompatibility or _refused(f"the column file {file.file.path!r} of {uri}: {problem}")
            continue
        seen.add(file.fragment)
        footers.add(file.file.path, file.rows, file.file.fields)
        taken.files.append(file)
        taken.sizes[file.file.path] = file.file.size_bytes
    footers.finish()
    return taken


def only_columns(target: LanceTarget, columns: Sequence[str]) -> LanceTarget:
    """Return the target of a file that has these columns only, in this order."""
    schema = decode_schema(target.arrow_schema)
    return target.model_copy(
        update={
            "fields": tuple(each for name in columns for each in target.fields if each.id in ids_of(target.fields, (name,))),
            "arrow_schema": encode_schema(pa.schema([schema.field(name) for name in columns])),
        }
    )


def ids_of(fields: Iterable[LanceField], columns: Sequence[str]) -> frozenset[int]:
    """Return the ids of these columns and of all that is in them."""
    return frozenset(each.id for each in fields if each.path.split(".")[0] in columns)


def _data_file(file: LanceDataFile) -> Any:
    return lance.fragment.DataFile(
        path=file.path,
        fields=list(file.fields),
        column_indices=list(file.column_indices),
        file_major_version=file.major_version,
        file_minor_version=file.minor_version,
        file_size_bytes=file.size_bytes,
    )


def _refused(what: str) -> Rejected:
    return Rejected(reasons.STAGED_RESULT_REFUSED, f"a seal names {what}")
