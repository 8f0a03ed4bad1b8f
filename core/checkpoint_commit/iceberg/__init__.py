"""The commit to Iceberg tables.

`commit` and `audit` hold the strategies of `commit_loop` over small ports, and know no library; `table` is the port over
pyiceberg. `target` says whether and how a table can be written, `history` which commits it has. `changes` makes what an operation
changes, and `metadata` the snapshot of it. `sink` is what the loop sees.
"""
