"""How far an epoch is, as its seals and its driver tell. No rule rests on it, but for rows that fail."""
