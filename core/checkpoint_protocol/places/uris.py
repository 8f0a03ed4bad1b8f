"""Which URIs are opened: buckets, and paths on disk where they are allowed. And what of a shell nobody expands here.

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
#: Properties by which an Iceberg table says where its files are to be put.
PLACES_OF_TABLES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
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
_AZURE_HOST: Final = re.compile(r"([^.]+)\.(?:dfs|blob)\.core\.windows\.net")
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


def account_of(host: str) -> str:
    """Return the account whose host in Azure stands after the @ of a URI; hosts elsewhere as they are."""
    named = _AZURE_HOST.fullmatch(host.lower())
    return named[1] if named is not None else host.lower()


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
        if scheme in ("wasb", "wasbs"):
            remedy = "no library here knows it any more; write abfss://container@account.dfs.core.windows.net/path"
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


# What a shell would expand in a path, and nobody does here: ~, variables, {a,b} and [0-9] are names like any other.
#
# A place that is written to by such a name would be made, beside the one that was meant.


_HOME: Final = r"(?<![^/])~[A-Za-z0-9_.-]*(?![^/])"
_VARIABLE: Final = r"\$\{[^{}/]+\}|(?<![^/])\$[A-Za-z_]\w*(?![^/])"
_HOME_WAY_OUT: Final = "write out the path of the home folder"
_VARIABLE_WAY_OUT: Final = "write out its value"
#: What may stand in the path of a source, each with what to write.
_IN_PATTERNS: Final = (
    (re.compile(r"(?<!\$)\{[^{}/]*,[^{}/]*\}"), "add a path to paths for each name"),
    (re.compile(r"\[(?![*?\[]\])[^\]/]+\]"), "write ? for the character"),
    (re.compile(_HOME), _HOME_WAY_OUT),
    (re.compile(_VARIABLE), _VARIABLE_WAY_OUT),
)


def hint_on_pattern(path: str) -> str:
    """Say of a path of a source that means no file what in it is no wildcard, and what to write; nothing if there is no such."""
    for pattern, way_out in _IN_PATTERNS:
        if (found := pattern.search(path)) is not None:
            return f"{found[0]} is taken as it stands, as the wildcards are *, ** and ? only: {way_out}"
    return ""


def why_not_expanded(uri: str) -> str | None:
    """Say what would have to be expanded in the URI of a place; None if there is nothing. A bucket may be called $web."""
    if local_path(uri) is None:
        path = "/" + uri.partition("://")[2].partition("/")[2]
    else:
        path = re.sub(r"^file:(//)?", "", uri, flags=re.IGNORECASE)  # not a Path, which drops ./
        if (home := re.match(_HOME, path)) is not None:
            return f"{uri} cannot be used: {home[0]} is not expanded; {_HOME_WAY_OUT} (a folder of this name is ./{home[0]})"
    if (variable := re.search(_VARIABLE, path)) is not None:
        return f"{uri} cannot be used: {variable[0]} is not expanded; {_VARIABLE_WAY_OUT}"
    return None
