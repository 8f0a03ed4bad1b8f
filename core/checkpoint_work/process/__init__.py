"""What a process of a driver or a task has, and what it tells."""
