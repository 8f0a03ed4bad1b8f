"""Readers of file-like sources, one module a format: they list, describe and read files by position."""
