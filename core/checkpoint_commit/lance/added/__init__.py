"""Columns for rows that a Lance dataset has."""
