"""The input of an epoch from a reader's description, without a store to list."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from checkpoint_formats.files.locations import FoundFile
from checkpoint_formats.files.take import take_with
from checkpoint_formats.port import FileReader
from checkpoint_formats.rows.plain_types import encode_schema
from checkpoint_formats.rows.selecting import Selection
from checkpoint_formats.taking import Taking
from checkpoint_protocol.identity import new_token
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import InputRecord, LaunchRecord
from checkpoint_work.inputs.epoch_input import Earlier, earlier_of


def input_of_files(
    launch: LaunchRecord,
    reader: FileReader,
    identify: Callable[[str], str],
    earlier: Earlier,
    found: Sequence[FoundFile] = (),
    left: int = 0,
) -> InputRecord:
    """Return what an epoch takes of the files that a reader describes whatever was found."""
    before = earlier_of(earlier, 0, launch)
    taken = take_with(reader, Taking(launch, 0, Selection(), StorageSettings(), before, found, identify))
    schema = encode_schema(taken.schema)
    return InputRecord(token=new_token(), files=taken.files, arrow_schema=schema, left=left, file_columns=taken.file_columns)
