"""The join of an upsert: which rows of a table have the keys of rows that were staged. By DuckDB, with bounded memory."""
