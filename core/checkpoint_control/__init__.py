"""The control of one write: observe, decide, act. Knows no Kubernetes, no table library and no terminal."""
