"""Stored forms that never change: what one release has written, every later one must read."""
