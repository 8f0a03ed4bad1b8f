"""The one idempotent commit: what is committed, the two protocols, and the adapters to the table libraries.

`iceberg` and `lance` hold the protocols over small ports, and know no library; `iceberg_table` and `lance_table` are the ports
over pyiceberg and pylance.
"""
