"""The process of a driver, and Spark in it."""
