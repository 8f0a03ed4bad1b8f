"""Iceberg tables: read at a snapshot, and staged for."""
