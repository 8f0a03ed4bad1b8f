"""The formats: what records may hold of any of them."""
