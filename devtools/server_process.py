"""One server as a child process: started, waited for within a bound, ended by its own handle, and never left behind."""

import http.client
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from devtools.ports import LOOPBACK

READY_SECONDS = 60.0
STOP_SECONDS = 10.0


class ServerFailed(Exception):
    pass


class ServerProcess:
    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        ready_path: str = "/",
        log: Path,
        environment: Mapping[str, str],
        host: str = LOOPBACK,
        tls: ssl.SSLContext | None = None,
        is_ready: Callable[[], bool] | None = None,
    ) -> None:
        """`is_ready` is for what does not speak HTTP; what does is asked for `ready_path`."""
        self._host = host
        self._tls = tls
        self.port = port
        self._command = list(command)
        self._ready_path = ready_path
        self._is_ready = is_ready
        self._log = log
        # Not the caller's environment: a developer's own cloud or server settings must not reach a test.
        self._environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **environment}
        self._server: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._server is None:
            raise ServerFailed("the server is not running")
        return self._server.pid

    def start(self) -> None:
        if self._server is not None:
            if self._server.poll() is None:
                raise ServerFailed("the server is running already")
            self.kill()
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C in a terminal must reach the tests, which still need the server to finish.
            self._server = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._watcher = _watch(self._server.pid)
            self._wait_until_ready(self._server)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Asks, and after a bound insists. Does nothing when the server is not running."""
        self._end(ask_first=True)

    def kill(self) -> None:
        """As a power cut would: the server gets no chance to finish anything."""
        self._end(ask_first=False)

    def exit_code(self) -> int | None:
        """None while it runs. One that has ended by itself can be started again."""
        return self._server.poll() if self._server is not None else None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Its connections stand, and nobody answers."""
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def _end(self, *, ask_first: bool) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.kill()
            watcher.communicate()
        server, self._server = self._server, None
        if server is None:
            return
        if ask_first:
            server.terminate()
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
        else:
            server.kill()
        server.wait()

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if server.poll() is not None:
                raise ServerFailed(f"ended with {server.returncode} before it was ready:\n{self._last_words()}")
            if self._answers():
                return
            time.sleep(0.02)
        raise ServerFailed(f"not ready within {READY_SECONDS:.0f} s:\n{self._last_words()}")

    def _answers(self) -> bool:
        if self._is_ready is not None:
            return self._is_ready()
        connection = self._connection()
        try:
            connection.request("GET", self._ready_path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self.port, timeout=5)
        return http.client.HTTPSConnection(self._host, self.port, timeout=5, context=self._tls)

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def _watch(pid: int) -> subprocess.Popen[bytes]:
    """Ends the server when this process is gone: the pipe's other end closes even if the tests are killed outright."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r line; kill "$1"', "watch", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Server:
    """A server that tests and examples use as a context: what all of them have over their one process."""

    _process: ServerProcess

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
