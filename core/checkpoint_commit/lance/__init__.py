"""The commit to Lance datasets.

`commit` holds the strategies of `commit_loop` over a small port, and knows no library; `table` is the port over pylance.
`history` says which commits a dataset has. `changes` makes what an operation changes; `added` is about columns for rows that are
there. `sink` is what the loop sees.
"""

import os

# Lance warns at each DataReplacement that it is young. Whether it does what adding columns rests on, `probe` has tried.
# Read when lance is imported; what the user sets goes first.
os.environ.setdefault("LANCE_LOG", "warn,lance_table::transaction::manifest_build=error")
