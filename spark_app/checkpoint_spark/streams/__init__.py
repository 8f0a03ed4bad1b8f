"""Streams: a query of Spark's Structured Streaming, whose micro-batches are epochs.

refusals     which queries are taken
checkpoint   Spark's own checkpoint of the query, held against what is committed
volume       the same in a volume that drivers share: a folder for each driver
query        the query, and its micro-batches one after another
batch        one micro-batch: its plan, its tasks, its seals
merges       what its commit needs beside: merges of an upsert
"""
