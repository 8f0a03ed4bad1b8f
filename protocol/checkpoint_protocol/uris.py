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
#: The same for the API server, which knows regular expressions without lookahead only. A text matches if its beginning does.
URI_PATTERN: Final = rf"^(({'|'.join(BUCKET_SCHEMES)})://[^/]|file:|[^A-Za-z]|[A-Za-z][A-Za-z0-9+.-]*([^A-Za-z0-9+.:-]|$))"

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class UriPattern:
    """Says in an annotation that the CRD has this pattern for a field.

    The models do not: records have the same sections, and one that an older release has stored must stay readable.
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
        way_out = "write the scheme in lower case" if known else f"use {WHAT_IS_OPENED} (a path may begin with ./)"
        return f"{uri} cannot be used: nothing is opened by the scheme {scheme}:; {way_out}"
    if not uri.startswith(f"{scheme}://") or not uri[len(scheme) + 3 :].partition("/")[0]:
        return f"{uri} cannot be used: {scheme}:// and the name of a bucket are expected"
    return None
