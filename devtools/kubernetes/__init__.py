"""A real Kubernetes for the tests: its own programs, built from their modules, on this machine alone.

Watches that break, conflicts, finalizers, quotas, evictions and exit codes are what the operator lives on; a stand-in would agree
with whatever we believe of them. `api_server_only` is enough for the controller and starts in seconds, `cluster` runs pods.
"""

from devtools.kubernetes.api_server_only import ApiServer, start_api_server_only
from devtools.kubernetes.cluster import Cluster
from devtools.kubernetes.kube_client import CommandFailed, KubeClient

__all__ = ["ApiServer", "Cluster", "CommandFailed", "KubeClient", "start_api_server_only"]
