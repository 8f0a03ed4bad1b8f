"""An Iceberg REST catalog: Iceberg's own reference servlet over its JDBC catalog in a SQLite file.

What it refuses, and with which answer, is what the specification's authors meant: the committer is tested against that.
"""

import hashlib
import os
import secrets
from pathlib import Path

from devtools import build_tools, cache, maven
from devtools.ports import LOOPBACK, free_port
from devtools.s3_server import S3Server
from devtools.server_process import Server, ServerProcess

ICEBERG = "1.10.0"
# The version that Iceberg 1.10.0 is built with.
AWS_SDK = "2.33.0"
JARS = (
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    # The servlet is published among the tests of iceberg-core.
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.eclipse.jetty:jetty-servlet:11.0.26",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.slf4j:slf4j-simple:2.0.17",
    # For a warehouse on S3. KMS and STS are not used, but Iceberg's AWS settings do not load without their classes.
    f"org.apache.iceberg:iceberg-aws:{ICEBERG}",
    f"software.amazon.awssdk:s3:{AWS_SDK}",
    f"software.amazon.awssdk:kms:{AWS_SDK}",
    f"software.amazon.awssdk:sts:{AWS_SDK}",
)
MAIN_CLASS = "BoundRestCatalog"
SOURCE = Path(__file__).with_name(f"{MAIN_CLASS}.java")


def server_classes() -> Path:
    """The cache entry with `jars` and `classes`; another source or another list of jars is another entry."""
    made_of = hashlib.sha256("\n".join(JARS).encode() + SOURCE.read_bytes()).hexdigest()[:12]
    return cache.ensure(f"iceberg-rest-catalog-{ICEBERG}-{made_of}", _build)


def _build(target: Path) -> None:
    jars = target / "jars"
    maven.copy_jars(JARS, jars, transitive=True)
    javac = [build_tools.find("javac"), "--release=17", "-cp", f"{jars}/*", "-d", str(target / "classes"), str(SOURCE)]
    build_tools.run(javac)


class RestCatalog(Server):
    """Runs inside `with`. Stopped or killed, it can be started again: same port, same tables.

    The warehouse is a folder, or, given an S3 server, a bucket of its own there.
    """

    def __init__(self, directory: Path, s3: S3Server | None = None, host: str = LOOPBACK) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port(host)
        self.uri = f"http://{host}:{port}"
        self._s3 = s3
        if s3 is None:
            self.warehouse = f"file://{directory.absolute()}/warehouse"
        else:
            self.warehouse = f"s3://{s3.make_bucket(f'warehouse-{secrets.token_hex(6)}')}"
        scratch = directory / "scratch"
        scratch.mkdir(exist_ok=True)
        entry = server_classes()
        properties = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{directory.absolute()}/catalog.db",
            "jdbc.schema-version": "V1",
            # SQLite has one writer; a second connection would only add "database is locked" to the answers.
            "clients": "1",
            "warehouse": self.warehouse,
            **_file_io(s3),
        }
        self._process = ServerProcess(
            [
                build_tools.find("java"),
                *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
                f"-Djava.io.tmpdir={scratch.absolute()}",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
                *("-cp", f"{entry / 'classes'}{os.pathsep}{entry / 'jars'}/*"),
                MAIN_CLASS,
                host,
                str(port),
            ],
            host=host,
            port=port,
            ready_path="/v1/config",
            log=directory / "rest_catalog.log",
            environment={"REST_CATALOG_PROPERTIES": "\n".join(f"{name}={value}" for name, value in properties.items())},
        )

    @property
    def pyiceberg_properties(self) -> dict[str, str]:
        """For `load_catalog("any name", **properties)`."""
        return {"type": "rest", "uri": self.uri, **(self._s3.pyiceberg_properties if self._s3 else {})}


def _file_io(s3: S3Server | None) -> dict[str, str]:
    if s3 is None:
        return {}
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.access_key,
        "s3.secret-access-key": s3.secret_key,
        "s3.path-style-access": "true",
        "client.region": s3.region,
    }
