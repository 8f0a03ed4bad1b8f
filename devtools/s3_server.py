"""An S3 server: versitygw over a plain directory. It honours `If-None-Match: *`, which the whole protocol leans on."""

import secrets
import subprocess
from pathlib import Path

from obstore.store import S3Store

from devtools import build_tools, cache
from devtools.ports import LOOPBACK, free_port
from devtools.server_process import Server, ServerProcess

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
REGION = "us-east-1"
HEALTH_PATH = "/healthz"


def gateway_binary() -> Path:
    return cache.ensure(f"versitygw-{VERSION}", _build) / "versitygw"


def _build(target: Path) -> None:
    # Without cgo no C compiler is needed.
    environment = {"GOBIN": str(target), "CGO_ENABLED": "0"}
    build_tools.fetch([build_tools.find("go"), "install", f"{MODULE}@{VERSION}"], environment=environment, cwd=target)


class S3Server(Server):
    """Runs inside `with`. Stopped or killed, it can be started again: same port, same keys, same objects."""

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        self.region = REGION
        self.access_key = secrets.token_hex(10)
        self.secret_key = secrets.token_hex(20)
        port = free_port(host)
        self.endpoint = f"http://{host}:{port}"
        self.objects = directory / "objects"
        self.objects.mkdir(parents=True, exist_ok=True)
        users = directory / "users"
        users.mkdir(exist_ok=True)
        self._binary = str(gateway_binary())
        # Never with `--keep-alive`: in this version the next request on a connection is then at times refused as malformed
        # (400 BadRequest), which pyarrow meets when it completes a multipart upload on a busy machine.
        self._process = ServerProcess(
            [
                self._binary,
                f"--port={host}:{port}",
                f"--region={REGION}",
                f"--health={HEALTH_PATH}",
                "--quiet",
                # A user that was removed is refused at once.
                *("--iam-dir", str(users), "--iam-cache-disable"),
                "posix",
                str(self.objects),
            ],
            host=host,
            port=port,
            ready_path=HEALTH_PATH,
            log=directory / "s3_server.log",
            environment={"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key},
        )

    def make_bucket(self, name: str) -> str:
        """By the gateway's own client, as obstore cannot make buckets. Three or more characters."""
        self._administer("create-bucket", f"--owner={self.access_key}", f"--bucket={name}")
        return name

    def make_user(self, access_key: str, secret_key: str) -> None:
        """Let keys into all buckets, until the user is removed."""
        self._administer("create-user", f"--access={access_key}", f"--secret={secret_key}", "--role=admin")

    def remove_user(self, access_key: str) -> None:
        self._administer("delete-user", f"--access={access_key}")

    def _administer(self, *arguments: str) -> None:
        done = subprocess.run(
            [self._binary, "admin", f"--region={REGION}", f"--endpoint-url={self.endpoint}", *arguments],
            env={"ADMIN_ACCESS_KEY": self.access_key, "ADMIN_SECRET_KEY": self.secret_key},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if done.returncode != 0:
            raise ValueError(f"not done ({arguments}): {done.stderr.strip()}")

    def store(self, bucket: str, prefix: str | None = None) -> S3Store:
        return S3Store(
            bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=REGION,
            client_options={"allow_http": True},
        )

    @property
    def pyiceberg_properties(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": REGION,
        }

    @property
    def lance_storage_options(self) -> dict[str, str]:
        return {
            "aws_endpoint": self.endpoint,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_region": REGION,
            "allow_http": "true",
        }
