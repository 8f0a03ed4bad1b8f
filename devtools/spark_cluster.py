"""A Spark standalone cluster on loopback whose workers have addresses of their own.

Spark starts a speculative try on another host than the first try only, so workers that share one address never speculate;
`local[n]` and `local-cluster` are of that kind.
"""

import os
import sys
from pathlib import Path
from types import TracebackType

import pyspark

from devtools.ports import LOOPBACK, free_port
from devtools.server_process import ServerProcess

WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")


class SparkCluster:
    """A master and two workers of one core each."""

    def __init__(self, directory: Path, executor_environment: dict[str, str]) -> None:
        self._port = free_port()
        environment = {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_PYTHON": sys.executable,
            # Else the launcher looks for the folders of a source build.
            "SPARK_SCALA_VERSION": "2.13",
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
            **executor_environment,
        }
        java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java"
        launcher = [java, "-cp", f"{environment['SPARK_HOME']}/jars/*", "-Xmx512m"]
        package = "org.apache.spark.deploy"

        def server(name: str, arguments: list[str], web_port: int, host: str) -> ServerProcess:
            return ServerProcess(
                [*launcher, f"{package}.{name}", "--host", host, "--webui-port", str(web_port), *arguments],
                port=web_port,
                ready_path="/json/",
                log=directory / f"spark-{name.split('.')[-1].lower()}-{web_port}.log",
                host=host,
                environment={**environment, "SPARK_LOCAL_IP": host, "SPARK_LOCAL_HOSTNAME": host},
            )

        directory.mkdir(parents=True, exist_ok=True)
        self._servers = [server("master.Master", ["--port", str(self._port)], free_port(), LOOPBACK)]
        for host in WORKER_HOSTS:
            arguments = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{host}"), self.master]
            self._servers.append(server("worker.Worker", arguments, free_port(), host))

    @property
    def master(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> "SparkCluster":
        for server in self._servers:
            server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for server in reversed(self._servers):
            server.stop()
