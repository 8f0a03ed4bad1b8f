"""What steps give, as Arrow."""
