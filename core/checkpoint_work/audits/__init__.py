"""The function that audits a table before its rows are published."""
