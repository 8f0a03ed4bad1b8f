"""Ports that a server can come back to after a restart."""

import random
import socket

LOOPBACK = "127.0.0.1"
# Below the ranges from which the kernels draw the local ports of outgoing connections (Linux 32768, macOS 49152): a port
# from there could be taken by any client while its server is down.
CANDIDATES = range(20_000, 32_000)


def free_port(host: str = LOOPBACK) -> int:
    for port in random.sample(CANDIDATES, 100):
        with socket.socket() as attempt:
            try:
                attempt.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port on {host}")
