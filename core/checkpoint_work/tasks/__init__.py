"""A task: rows through the steps, staged files, seals."""
