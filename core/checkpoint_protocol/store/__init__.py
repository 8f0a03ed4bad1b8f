"""The object store: put-if-absent, read, list."""
