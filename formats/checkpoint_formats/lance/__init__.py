"""Lance datasets: read at a version, and staged for."""
