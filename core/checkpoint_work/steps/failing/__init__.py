"""Rows on which steps raise."""
