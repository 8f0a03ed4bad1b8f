"""A report of a write as one HTML page: what its records tell (collecting), as a picture (drawing) and as a page (rendering)."""
