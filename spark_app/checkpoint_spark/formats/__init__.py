"""Stagers, one module a table format. Only here does the Spark application know Iceberg or Lance."""
