"""The one idempotent commit: what is committed, the two protocols, and the adapters to the table libraries.

`iceberg` and `lance` hold the protocols over small ports, and know no library; `iceberg_table` and `lance_table` are the ports
over pyiceberg and pylance. `changes` says what is committed of an operation; `iceberg_append` and `lance_append` make that of an
append.
"""
