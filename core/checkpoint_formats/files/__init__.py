"""Sources that are files, found by paths and patterns, on disk and in buckets."""
