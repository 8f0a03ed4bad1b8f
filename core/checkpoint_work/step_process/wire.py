"""Messages between a task and its step process, over a socket: a JSON object, and maybe Arrow data. Nothing is unpickled."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

#: The lengths of the JSON text and of the Arrow data, in bytes.
_HEAD: Final = struct.Struct(">IQ")
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """What is said, and the Arrow data that comes with it."""

    said: dict[str, Any]
    data: bytes = b""

    @property
    def batches(self) -> list[pa.RecordBatch]:
        with pa.ipc.open_stream(self.data) as reader:
            return list(reader)

    @property
    def schema(self) -> pa.Schema | None:
        if not self.data:
            return None
        with pa.ipc.open_stream(self.data) as reader:
            return reader.schema


def with_batch(said: dict[str, Any], batch: pa.RecordBatch) -> Message:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Message(said, sink.getvalue().to_pybytes())


def with_schema(said: dict[str, Any], schema: pa.Schema | None) -> Message:
    if schema is None:
        return Message(said)
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    return Message(said, sink.getvalue().to_pybytes())


@dataclass(slots=True)
class Wire:
    """One end of the socket. Any thread may send; one at a time may receive."""

    socket: socket.socket
    _received: bytearray = field(default_factory=bytearray)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Message) -> None:
        """Raises OSError where the other end is gone."""
        text = json.dumps(message.said).encode()
        with self._lock:
            self.socket.sendall(_HEAD.pack(len(text), len(message.data)) + text)
            if message.data:
                self.socket.sendall(message.data)

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message; None if it was not all there in time, and what has come of it is kept.

        Raises EOFError where the other end is closed, OSError where it is gone.
        """
        # Not the socket's own timeout, which other threads would send with.
        ready = select.poll()
        ready.register(self.socket, select.POLLIN)
        while (message := self._next()) is None:
            if not ready.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            if not (read := self.socket.recv(_READ_BYTES)):
                raise EOFError
            self._received += read
        return message

    def _next(self) -> Message | None:
        if len(self._received) < _HEAD.size:
            return None
        text_bytes, data_bytes = _HEAD.unpack_from(self._received)
        start = _HEAD.size + text_bytes
        if len(self._received) < start + data_bytes:
            return None
        said = json.loads(self._received[_HEAD.size : start])
        data = bytes(memoryview(self._received)[start : start + data_bytes])
        del self._received[: start + data_bytes]
        return Message(said, data)
