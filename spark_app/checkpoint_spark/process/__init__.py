"""What a process of Spark has, and what it tells."""
