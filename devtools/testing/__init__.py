"""How the tests are run: by how many processes, which of them after a change, on a slow machine, and what is told of failures."""
