"""The sources that a manifest can name."""
