"""Append to a Lance dataset: the staged fragments, as Lance takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import lance
from lance.fragment import FragmentMetadata

from checkpoint_commit.footers import Footers
from checkpoint_commit.lance.files.checks import FragmentChecks, is_of_first_format
from checkpoint_commit.lance.history import LanceHistory
from checkpoint_commit.outcomes import Rejected
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Corrupt, one_line
from checkpoint_protocol.records import Append, LanceFragment, LanceTarget

DATA_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*\.lance")


@dataclass(slots=True)
class LanceAppend:
    """Append of the staged fragments of one epoch. A LanceChange.

    `sizes`: those of the data files, by their names. `incompatibility`: why they must not be committed, as far as the seals tell.
    """

    operation: Append = field(default_factory=Append)
    fragments: list[FragmentMetadata] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    incompatibility: Rejected | None = None

    def __len__(self) -> int:
        return len(self.fragments) + (self.incompatibility is not None)

    def find_conflict(self, dataset: Any, history: LanceHistory) -> Rejected | None:
        """Rows that others add are in nobody's way."""
        return None

    def lance_operation(self, open_version: Callable[[], Any]) -> Any:
        return lance.LanceOperation.Append(self.fragments)


def pack(
    uri: str, targets: Sequence[LanceTarget] | None, files: Iterable[LanceFragment], footers: Footers | None = None
) -> LanceAppend:
    """Make Lance's form of the fragments as they come. `targets`: what they were staged for; None: that was checked before."""
    checks = None if targets is None else FragmentChecks(targets)
    packed = LanceAppend()
    for fragment in files:
        if checks is not None and (problem := checks.problem_of(fragment)) is not None:
            message = (
                f"what a seal says of the fragment {', '.join(fragment.paths) or '(no files)'} of {uri} cannot be so: {problem}"
            )
            packed.incompatibility = packed.incompatibility or Rejected(reasons.STAGED_RESULT_REFUSED, message)
            continue
        for data_file in fragment.files:
            if not DATA_FILE_NAME.fullmatch(data_file.path):
                message = f"a seal names {data_file.path!r}, which is not a data file of {uri}"
                packed.incompatibility = packed.incompatibility or Rejected(reasons.STAGED_RESULT_REFUSED, message)
            elif data_file.path in packed.sizes:
                message = f"seals name the data file {data_file.path} of {uri} twice, so that its rows would be there twice"
                packed.incompatibility = packed.incompatibility or Rejected(reasons.STAGED_RESULT_REFUSED, message)
            elif footers is not None and not is_of_first_format(data_file):
                footers.add(data_file.path, fragment.rows, data_file.fields)
            packed.sizes[data_file.path] = data_file.size_bytes
        packed.fragments.append(_fragment(fragment))
    if footers is not None:
        footers.finish()
    return packed


def _fragment(file: LanceFragment) -> FragmentMetadata:
    """Return Lance's form of a staged fragment, made from what was checked and nothing else. Lance gives the id."""
    plain = {
        "id": 0,
        "files": [
            {
                "path": data_file.path,
                "fields": list(data_file.fields),
                "column_indices": list(data_file.column_indices),
                "file_major_version": data_file.major_version,
                "file_minor_version": data_file.minor_version,
                "file_size_bytes": data_file.size_bytes,
                "base_id": None,
            }
            for data_file in file.files
        ],
        "overlays": [],
        "physical_rows": file.rows,
        "deletion_file": None,
        "row_id_meta": None,
        "created_at_version_meta": None,
        "last_updated_at_version_meta": None,
    }
    try:
        return FragmentMetadata.from_json(json.dumps(plain))
    except (ValueError, TypeError) as error:
        raise Corrupt(
            reasons.STAGED_RESULT_REFUSED, f"a staged fragment is not one that Lance can read: {one_line(error)}"
        ) from error
