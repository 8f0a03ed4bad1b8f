"""Real servers for the tests: an S3 gateway and an Iceberg REST catalog, both on loopback.

Exactly-once rests on what a store and a catalog answer to two writers at once, so the tests ask real ones instead of stand-ins.
"""
