"""What one commit does to a Lance dataset, a module for each operation."""
