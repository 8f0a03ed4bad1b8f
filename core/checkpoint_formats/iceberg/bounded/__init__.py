"""Metadata of tables, read within bounds."""
