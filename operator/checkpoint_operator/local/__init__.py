"""One machine: a process instead of a pod. Adapters only; the loop, the protocols and the store are the operator's own."""
