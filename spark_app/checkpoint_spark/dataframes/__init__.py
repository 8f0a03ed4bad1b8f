"""The DataFrame way: anything that Spark reads, by row keys. Here, and in shipping, the Spark application knows Spark's API."""
