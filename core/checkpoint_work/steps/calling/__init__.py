"""How the callables of steps are called: at once or many at a time, again, and at which rate."""
