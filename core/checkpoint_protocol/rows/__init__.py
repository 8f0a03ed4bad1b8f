"""Arithmetic of rows: positions, keys, and which rows were made of which."""
