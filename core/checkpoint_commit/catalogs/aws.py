"""As whom AWS is asked, the signatures of its requests (SigV4), and what its refusals are called.

boto3 is imported only where there is a catalog that needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from requests import PreparedRequest

from checkpoint_protocol.places.setting_values import SettingsPlace, reveal
from checkpoint_protocol.places.settings import AwsIdentity, Signing

if TYPE_CHECKING:
    from boto3.session import Session

_REFUSED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "NoCredentialsError",
        "PartialCredentialsError",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


def session_of(identity: AwsIdentity, place: SettingsPlace, section: str) -> Session:
    """Return who asks. `section`: of the settings, in which the identity stands."""
    from boto3.session import Session

    def secret(field: str) -> str | None:
        value = getattr(identity, field)
        return None if value is None else reveal(value, place.name(f"{section}.{field}"))

    return Session(secret("access_key_id"), secret("secret_access_key"), secret("session_token"), identity.region)


def signer_of(signing: Signing, place: SettingsPlace, section: str) -> Callable[[PreparedRequest], None]:
    """Return what signs a request by its headers."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest

    credentials = session_of(signing, place, section).get_credentials()

    def sign(request: PreparedRequest) -> None:
        url, body = str(request.url), request.body or b""
        assert isinstance(body, bytes)  # JSON, as pyiceberg sends it
        # Others on the way may change what else is in the headers.
        headers = {"X-Amz-Content-SHA256": hashlib.sha256(body).hexdigest()}
        if "Content-Type" in request.headers:
            headers["Content-Type"] = str(request.headers["Content-Type"])
        query = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        signed = AWSRequest(method=request.method, url=url, params=query, data=body, headers=headers)
        # Those of a machine change from time to time.
        now = credentials and credentials.get_frozen_credentials()
        SigV4Auth(now, signing.name, signing.region).add_auth(signed)
        request.headers.update(signed.headers)

    return sign


def is_refusal(error: Exception) -> bool:
    """Whether AWS, or its client, says that it is not who may ask."""
    answer: Any = getattr(error, "response", None)
    return (
        is_of_aws(error)
        and (str(answer.get("Error", {}).get("Code")) if isinstance(answer, dict) else type(error).__name__) in _REFUSED
    )


def is_of_aws(error: Exception) -> bool:
    return type(error).__module__.startswith("botocore.")
