"""What the operator asks of the format of a sink, and the one place that finds it."""
