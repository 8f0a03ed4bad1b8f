"""The code of a write's steps: its digest, and its archive."""
