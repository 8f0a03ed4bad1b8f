"""The DataFrame way: anything that Spark reads, by row keys. Spark's API is known here and in spark_runner."""
