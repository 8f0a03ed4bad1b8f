"""Which URIs are opened: those of buckets, by the schemes below, and paths on disk where they are allowed. Nothing else.

The libraries underneath know more schemes than these (FILE://, file-object-store://, memory://, hdfs://, hf://, ...), by which a
manifest, or the metadata of a table, would lead to the disk, the memory or the network of whoever opens it. So whatever begins
like a scheme and is none of these is refused: in manifests, in the CRD (by `URI_PATTERN`), and by `storage.py`, which everything
that opens a store or a table asks for its options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUCKET_SCHEMES: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
#: Names by which different libraries call one store.
SAME_STORE: Final = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}
WHAT_IS_OPENED: Final = f"a path, file: or one of {', '.join(f'{scheme}://' for scheme in BUCKET_SCHEMES)} with a bucket"
#: Anything more would be a user, a port or a query to some libraries, and part of the name to others.
_BUCKET_NAME: Final = r"[A-Za-z0-9._$-]+"
#: abfss://container@account.dfs.core.windows.net/
_CONTAINER_NAME: Final = rf"{_BUCKET_NAME}(@[A-Za-z0-9.-]+)?"
#: A name between two slashes that is neither . nor .., or none.
_NAME: Final = r"([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+)?"
#: The same for the API server, which knows regular expressions without lookahead only.
URI_PATTERN: Final = (
    rf"^((s3a?://{_BUCKET_NAME}|gc?s://{_BUCKET_NAME}|(az|abfss?)://{_CONTAINER_NAME})(/{_NAME})*$|"
    r"file:|[^A-Za-z]|[A-Za-z][A-Za-z0-9+.-]*([^A-Za-z0-9+.:-]|$))"
)

_BUCKET: Final = re.compile(_BUCKET_NAME)
_CONTAINER: Final = re.compile(_CONTAINER_NAME)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class UriPattern:
    """Says in an annotation that the CRD has this pattern for a field.

    The models do not: records have the same sections, and what a driver is told was checked by the API server.
    """

    pattern: str = URI_PATTERN


def scheme_of(uri: str) -> str | None:
    """Return what stands before the first colon as it is written, if it can be a scheme; None for a path."""
    found = _SCHEME.match(uri)
    return None if found is None else found[1]


def local_path(uri: str) -> Path | None:
    """Return the folder or file that a path or a file: URI, in any spelling, means; None for any other scheme.

    Nothing is unquoted: Hadoop, Spark and pyiceberg take file:/a%20b for a folder named "a%20b", and so must we.
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return Path(uri)
    if scheme.lower() != "file":
        return None
    rest = uri[len("file:") :]
    return Path(rest.removeprefix("//")) if rest.startswith("//") else Path(rest)


def why_not_opened(uri: str) -> str | None:
    """Say why nobody opens this URI; None for a path, file: and what is in a bucket."""
    scheme = scheme_of(uri)
    if scheme is None or scheme == "file":
        return None
    if scheme not in BUCKET_SCHEMES:
        known = scheme.lower() in (*BUCKET_SCHEMES, "file")
        remedy = "write the scheme in lower case" if known else f"use {WHAT_IS_OPENED} (a path may begin with ./)"
        return f"{uri} cannot be used: nothing is opened by the scheme {scheme}:; {remedy}"
    bucket, _, key = uri[len(scheme) + 3 :].partition("/")
    if not uri.startswith(f"{scheme}://") or not bucket:
        return f"{uri} cannot be used: {scheme}:// and the name of a bucket are expected"
    if not (_CONTAINER if SAME_STORE.get(scheme, scheme) == "az" else _BUCKET).fullmatch(bucket):
        return f"{uri!r} cannot be used: {bucket!r} is no name of a bucket; letters, digits, '.', '_' and '-' are expected"
    if not {".", ".."}.isdisjoint(key.split("/")):
        return f"{uri} cannot be used: . and .. are no folders of a bucket, and lead elsewhere; write the path without them"
    return None


def why_not_parsed(uri: str, refused: str = "?#") -> str | None:
    """Say why a library that parses URIs as the web does would open something else; None if it opens what is written.

    It drops line breaks, tabs, and spaces at both ends, and takes a ? or # for the beginning of something that is no path. A
    grant is of what is written.
    """
    if local_path(uri) is not None:
        return None
    found = next((character for character in uri if character in refused or ord(character) < ord(" ")), None)
    if found is None and uri == uri.strip():
        return None
    what = repr(found if found is not None else " ")
    return f"{uri!r} cannot be used: {what} stands in it, which is not taken for part of a name; use a name without it"
