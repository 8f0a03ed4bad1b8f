"""Iceberg catalogs, and what they say of tables."""
