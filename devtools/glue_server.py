"""An AWS Glue Data Catalog: moto's server. The check of VersionId, which moto leaves out, is ours, as AWS documents it."""

import sys
import threading
from pathlib import Path
from typing import Any

from devtools.ports import LOOPBACK, free_port
from devtools.server_process import Server, ServerProcess

REGION = "us-east-1"


class GlueServer(Server):
    """Runs inside `with`. What it has is gone when it ends. Any keys will do."""

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        port = free_port(host)
        self.endpoint = f"http://{host}:{port}"
        self.region = REGION
        self._process = ServerProcess(
            [sys.executable, __file__, "--host", host, "--port", str(port)],
            host=host,
            port=port,
            ready_path="/moto-api/",
            log=directory / "glue_server.log",
            environment={"PYTHONPATH": str(Path(__file__).parent.parent)},
        )


def _serve() -> None:
    from moto.core.exceptions import JsonRESTError
    from moto.glue.responses import GlueResponse
    from moto.server import main

    update, one_at_a_time = GlueResponse.update_table, threading.Lock()

    def update_table(self: Any) -> Any:
        version, name = self.parameters.get("VersionId"), self.parameters["TableInput"]["Name"]
        with one_at_a_time:
            table = self.glue_backend.get_table(self.parameters["DatabaseName"], name)
            if version is not None and version != table.as_dict()["VersionId"]:
                raise JsonRESTError("ConcurrentModificationException", f"{name} has another version than {version}")
            return update(self)

    GlueResponse.update_table = update_table  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    _serve()
