"""The operator: observes a write, decides, acts. The only committer. Knows no Spark."""
