"""The entry points of the image."""
