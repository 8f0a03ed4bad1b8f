"""Spark as the runner of the work, and as a source by key. What a driver and its tasks do is in checkpoint_work."""
