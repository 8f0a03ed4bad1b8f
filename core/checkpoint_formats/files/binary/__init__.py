"""Files that are one row each."""
