"""A REST catalog that is asked, and not obeyed: its answers choose no code, no address and no header.

Nor do they choose a credential, but for the files of a table, where the settings say `credentials: vended` twice: of the catalog,
and of the storage entry that covers the files, from which endpoint and region come.

pyiceberg merges what a server answers to `/v1/config`, and with each table, into its own properties. Some of these name Python
classes, which it imports and calls, others the address that tokens are sent to. A server may say how its paths are made, and
nothing else; it is told by a list of what is taken, because pyiceberg may know other properties tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from pyiceberg.catalog.rest import OAUTH2_SERVER_URI, RestCatalog, TableResponse
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.table import StagedTable, Table
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from checkpoint_commit.catalogs.vended import keys_of_table, vended_keys
from checkpoint_formats.iceberg.bounded.files import hold_json
from checkpoint_formats.iceberg.file_io import CheckedFileIO
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import NeedsChange
from checkpoint_protocol.places.handed_keys import RenewedKeys

CONNECT_WITHIN_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 20
_PREFIX: Final = "prefix"
_SEPARATOR: Final = "namespace-separator"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Sign = Callable[[PreparedRequest], None]


class BoundedRestCatalog(RestCatalog):
    """Its requests end, those for a token and for the catalog's configuration too, which are sent while it is made.

    An answer of more than `most_answer_bytes` is refused, and one that sends us to another server: NeedsChange. `sign`: called
    with each request before it is sent. (What signs for pyiceberg sends without a timeout, and up to ten times.) `is_vending`:
    the keys that come with a table are taken, for its files; else nothing of them.
    """

    def __init__(
        self,
        name: str,
        answer_within_s: float,
        most_answer_bytes: int,
        sign: Sign | None = None,
        is_vending: bool = False,
        **properties: str,
    ) -> None:
        self._answer_within_s = answer_within_s
        self._most_answer_bytes = most_answer_bytes
        self._sign = sign
        self._is_vending = is_vending
        super().__init__(name, **properties)

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        # Of its own: the session of the catalog would send an expired token along with each request for a new one.
        own = Session()
        self._bound(own, "oauth2_server_uri" if OAUTH2_SERVER_URI in self.properties else "uri")
        return super()._create_legacy_oauth2_auth_manager(own)

    def _create_session(self) -> Session:
        session = super()._create_session()
        self._bound(session)
        return session

    def _fetch_config(self) -> None:
        own, uri = self.properties, self.uri
        super()._fetch_config()
        # Nothing was made of the answer yet: the session that is used from here on comes after this.
        self.properties, self.uri = {**own, **_taken(self.properties, own, self.name)}, uri

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        table = super()._response_to_table(identifier_tuple, _without_config(table_response))
        if self._is_vending:
            keys = RenewedKeys(lambda: (keys_of_table(self.load_table(identifier_tuple)), True))
            keys.take(vended_keys(table_response))
            assert isinstance(table.io, CheckedFileIO)
            table.io = table.io.with_keys(keys)
        return table

    def _response_to_staged_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> StagedTable:
        return super()._response_to_staged_table(identifier_tuple, _without_config(table_response))

    def _bound(self, session: Session, field: str = "uri") -> None:
        for scheme in ("http://", "https://"):
            title, place = f"the catalog {self.name!r}", f"catalogs.{self.name}.{field}"
            session.mount(scheme, BoundedAdapter(title, place, self._answer_within_s, self._most_answer_bytes, self._sign))


class BoundedAdapter(HTTPAdapter):
    """Requests end: pyiceberg sends them without a timeout. Never sends a request twice.

    `title`: what the server is called in messages; `place`: where its address stands in the settings.
    """

    def __init__(self, title: str, place: str, answer_within_s: float, most_answer_bytes: int, sign: Sign | None = None) -> None:
        super().__init__(max_retries=0)
        self._title, self._place = title, place
        self._sign = sign
        self._timeout_s = (min(CONNECT_WITHIN_S, answer_within_s), answer_within_s)
        self._most_answer_bytes = most_answer_bytes

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        kwargs["timeout"] = kwargs.get("timeout") or self._timeout_s
        if self._sign is not None:
            self._sign(request)
        response = super().send(request, *args, **kwargs)
        self._refuse_redirect(str(request.url), response)
        self._read(response, self._most_answer_bytes)
        return response

    def _refuse_redirect(self, asked: str, response: Response) -> None:
        # What was sent is sent there again, and the request for a token has the secret in its body.
        if not response.is_redirect:
            return
        target = urljoin(asked, response.headers["location"])
        if _server_of(target) != _server_of(asked):
            response.close()
            raise NeedsChange(
                reasons.CATALOG_UNAVAILABLE,
                f"{self._title} sends requests on to {target[:200]!r}, which gets none: they hold credentials; "
                f"if it has moved, change {self._place} in the settings",
            )

    def _read(self, response: Response, most_bytes: int) -> None:
        held: list[bytes] = []
        length = 0
        for chunk in response.iter_content(_CHUNK_BYTES):
            length += len(chunk)
            if length > most_bytes:
                response.close()
                raise NeedsChange(
                    reasons.TABLE_UNSUPPORTED,
                    f"an answer of {self._title} has more than the {most_bytes:,} bytes that are read of a table's metadata; "
                    "expire snapshots",
                )
            held.append(chunk)
        response._content = b"".join(held)
        hold_json(response.content, f"an answer of {self._title}", most_bytes)


def _server_of(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _taken(answered: Mapping[str, Any], own: Mapping[str, Any], catalog: str) -> dict[str, str]:
    """Return what a server may set. NeedsChange for a prefix or a separator that leads out of the catalog's paths."""
    taken = {}
    for name in (_PREFIX, _SEPARATOR):
        if (value := answered.get(name, own.get(name))) is None:
            continue
        if not isinstance(value, str) or not _is_in_path(unquote(value), name):
            raise NeedsChange(
                reasons.CATALOG_UNAVAILABLE,
                f"the catalog {catalog!r} answers a {name!r} that leads out of its own paths: {str(value)[:200]!r}; correct the "
                f"server, or catalogs.{catalog}.uri in the settings",
            )
        taken[name] = value
    return taken


def _is_in_path(value: str, name: str) -> bool:
    if name == _SEPARATOR:
        return len(value) == 1 and value not in "/\\?#"
    return not set(value) & set("\\?#") and not {".", ".."} & set(value.split("/"))


def _without_config(response: TableResponse) -> TableResponse:
    """Leave out what comes with a table: a token for commits, classes, and credentials of the storage."""
    return response.model_copy(update={"config": {}, "storage_credentials": []})
