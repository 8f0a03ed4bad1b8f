"""The files that name rows of a fragment which are to be deleted: a column of their numbers, ascending or not.

Apart from who makes them: who commits them needs none of what finds such rows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

ROW: Final = pa.schema([pa.field("row", pa.uint64(), nullable=False)])
