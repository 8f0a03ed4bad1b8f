"""The decision: what is seen, and what follows from it. Pure: no store, no table, no clock, no terminal."""
