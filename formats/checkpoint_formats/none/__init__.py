"""No table."""
