"""The errors of the product, in three families that say who has to act.

    CheckpointError
    ├── Retryable     the store, catalog or cluster did not answer: the same call may succeed later
    ├── NeedsChange   a person must change something: the spec, the code, the table, a credential
    ├── Corrupt       a record cannot be read: never retried, never deleted, never taken for "not there"
    └── Superseded    another try of the same task has sealed this link: give up, the rows may already count

Every error carries a `reason`, one CamelCase word that a machine can act on (it becomes a condition's reason), and a message
that names the thing, the place and the way out.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from pydantic import ValidationError

#: Of a longer text, which may be an answer of a server, the rest is left out: expressions are matched against it.
_MOST_READ: Final = 10_000
#: What a store sends back of the keys and tokens of a request that it refuses. A text that is cut may not have the end of it.
SENT_BACK: Final = re.compile(
    r"<(AWSAccessKeyId|SignatureProvided|StringToSign(?:Bytes)?|CanonicalRequest(?:Bytes)?)>[^<]*(?:</\1>)?"
)
#: What libraries write around the cause of an error, and what takes its place.
_AROUND: Final = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        # obstore, and Lance, which says where in its code it was, too
        (r"LanceError\(\w+\): |Generic \w+ error: |Error performing list request: (?=Error performing )", ""),
        (r"Error performing ([A-Z]+) ([^\s?]+)\S* in [0-9.]+ ?\w+(?:, [^,]+?)*? +- (?:HTTP error: )?", r"\1 \2: "),
        (r",? \S+\.rs:\d+(?::\d+)?", ""),
        (SENT_BACK.pattern, ""),
        # pyarrow
        (r"When [^:]+: AWS Error NETWORK_CONNECTION during \w+ operation: curlCode: \d+, (?:[^;]*; Details: )?", ""),
        # pyiceberg, of an answer that is not of its protocol
        (r"RESTError (\d+): Received unexpected JSON Payload: (.*), errors: .*", r"HTTP \1: \2"),
        # librdkafka
        (r" \(after \d+ms in state [^()]*(?:\(s\)[^()]*)?\)", ""),
    )
)
#: The innermost cause, in obstore's dump of its own error.
_DUMPED: Final = re.compile(r'\b(?:message|error): "([^"\n]+)"')
_POOL: Final = r"HTTPS?Connection(?:Pool)?\(host='([^']*)', port=(\d+)\): "
#: urllib3, and requests, which has its words.
_OF_POOL: Final = re.compile(rf"{_POOL}(?:Max retries exceeded with url: .* \(Caused by (.*)\)$|(.*))")
_WRAPPED: Final = re.compile(r"""(?!HTTPS?Conn)[A-Z]\w+\((?:-?\d+, |'[^']*', )*(['"]?)(.*)\1,?\)""")
_OF_SOCKET: Final = re.compile(rf"{_POOL}|\[Errno -?\d+\] |Failed to establish a new connection: ")


def cause_of(text: str) -> str:
    """Return what a library says, in one line, cut to the cause: without dumps, places in its code, waits and queries of URLs."""
    head, _, dump = text[:_MOST_READ].partition("Debug source:")
    said = " ".join(head.split())
    for pattern, instead in _AROUND:
        said = pattern.sub(instead, said)
    if (found := _OF_POOL.search(said)) is not None:
        cause = found[3] or found[4]
        while (wrapped := _WRAPPED.fullmatch(cause)) is not None:
            cause = wrapped[2]
        said = f"{said[: found.start()]}{found[1]}:{found[2]}: {_OF_SOCKET.sub('', cause)}"
    dumped = _DUMPED.findall(dump)
    return f"{said}: {dumped[-1]}" if dumped and dumped[-1] not in said else said


def one_line(text: object, most: int = 400) -> str:
    """Return what others say, such as an exception of a library, in one line of bounded length: the cause, without the rest.

    pydantic's exceptions quote the values that they refuse. Those come from answers of catalogs and files of others.
    """
    if isinstance(text, ValidationError):
        problems = text.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, problem['loc'])) or '(top level)'}: {problem['msg']}" for problem in problems)
    return cause_of(str(text))[:most]


class CheckpointError(Exception):
    """An error with a machine-readable reason and a message for a person."""

    family: ClassVar[str] = "CheckpointError"

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[type[CheckpointError], tuple[str, str]]:
        # Spark carries exceptions between processes; without this only the message would arrive.
        return (type(self), (self.reason, self.message))


class Retryable(CheckpointError):
    """Something outside did not answer; trying again later is right."""

    family = "Retryable"


class NeedsChange(CheckpointError):
    """Trying again cannot help until a person changes something."""

    family = "NeedsChange"


class Corrupt(CheckpointError):
    """A stored record is not what it must be; a person has to see to it."""

    family = "Corrupt"


class Superseded(CheckpointError):
    """Another try has won the link or the attempt that this process worked on."""

    family = "Superseded"
