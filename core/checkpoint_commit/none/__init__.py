"""A sink without a table."""
