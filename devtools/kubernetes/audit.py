"""What service accounts ask of an API server: its audit log, of all but those of Kubernetes itself."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
    ],
}


@dataclass(frozen=True)
class Request:
    """`account`: namespace and name. `resource`: with its subresource, as in a role.

    `is_allowed`: by a role; what Pod Security or a quota refuses is.
    """

    account: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    is_allowed: bool


def read(log: Path) -> Iterator[Request]:
    """Give the requests for objects, each with what its answer began with. The last line may still be written."""
    for line in log.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        entry = json.loads(line)
        about = entry.get("objectRef")
        if about is None:
            continue
        yield Request(
            account=entry["user"]["username"].removeprefix("system:serviceaccount:").replace(":", "/"),
            verb=entry["verb"],
            group=about.get("apiGroup", ""),
            resource="/".join(filter(None, (about["resource"], about.get("subresource")))),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            is_allowed=entry["annotations"].get("authorization.k8s.io/decision") == "allow",
        )
