"""Streams: a query of Spark's Structured Streaming, whose micro-batches are epochs.

checkpoint   Spark's own checkpoint of the query, held against what is committed
volume       the same in a volume that drivers share: a folder for each driver
query        the query, its micro-batches one after another, and the merges that their commits need
batch        which queries are taken; one micro-batch: its plan, its tasks, its seals
"""
