"""Sources whose rows are identified by key: anything that Spark reads. Spark's API is known here and in spark_runner."""
