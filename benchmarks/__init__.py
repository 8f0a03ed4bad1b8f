"""What it costs, and what it saves: each figure is a ratio of two things that were measured in turn in one run.

    python -m benchmarks --list
    python -m benchmarks append-iceberg resume
    make bench

A figure is a module with `measure(bench)`, which gives its results; `figures.py` lists them. `pairs.py` runs sides in turn,
`results.py` keeps what came out, `rendering.py` shows it.
"""
