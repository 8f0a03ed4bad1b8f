"""Real servers: an S3 gateway, an Iceberg REST catalog, and a Kubernetes; for the tests, the benchmarks and `make cluster`.

Exactly-once rests on what a store and a catalog answer to two writers at once, so the tests ask real ones instead of stand-ins.
"""
