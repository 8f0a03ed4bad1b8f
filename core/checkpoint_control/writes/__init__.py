"""A write from its first registration to its deletion, under a name that may be used again."""
