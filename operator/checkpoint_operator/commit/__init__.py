"""The one idempotent commit: what is committed, the protocols, and the adapters to the table libraries.

`iceberg`, `lance` and `lance_swap` (overwrites of all) hold the protocols over small ports, and know no library; `iceberg_table`
and `lance_table` are the ports over pyiceberg and pylance. Of an Iceberg table, `iceberg_target` says whether and how it can be
written, `iceberg_history` which commits it has, and `iceberg_snapshot` makes the next one. Of a Lance dataset, `lance_history`
says which commits it has, and `lance_others` what other writers have put there. `changes` says what is committed of an
operation; `iceberg_append`, `iceberg_overwrite`, `lance_append` and `lance_overwrite` make that of theirs.
"""

import os

# Lance warns at each DataReplacement that it is young. Whether it does what adding columns rests on, `lance_probe` has tried.
# Read when lance is imported; what the user sets goes first.
os.environ.setdefault("LANCE_LOG", "warn,lance_table::transaction::manifest_build=error")
