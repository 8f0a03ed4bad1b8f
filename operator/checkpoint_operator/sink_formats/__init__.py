"""What the operator knows of each format that a sink can have: one module a format, and one place that lists them."""
