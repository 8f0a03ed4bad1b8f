"""What is known to be secret is masked, in each spelling in which it is likely to be said; nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint_protocol.manifest.spec import validate_model
from checkpoint_protocol.places.secrets import secrets_of
from checkpoint_protocol.places.settings import Settings


def settings(folder: Path) -> Settings:
    (folder / "key").write_text("from a file/+\n")
    return validate_model(
        Settings,
        {
            "storage": [
                {
                    "prefix": "s3://bucket/",
                    "access_key_id": "AKIDEXAMPLE",
                    "secret_access_key": {"file": str(folder / "key")},
                    "session_token": {"env": "NOT_SET_ANYWHERE"},
                }
            ],
            "catalogs": {"lake": {"type": "rest", "uri": "http://h", "credential": "id:geheim", "token": {"env": "LAKE"}}},
        },
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("key AKIDEXAMPLE refused", "key *** refused"),
        ("from a file/+", "***"),
        ("?k=from%20a%20file%2F%2B&", "?k=***&"),
        ("id:geheim", "***"),
        ("Bearer of the lake", "Bearer ***"),
        ("GET https://me:hunter22@host/x", "GET https://me:***@host/x"),
        ("postgresql://me:hunter22@host/x", "postgresql://me:***@host/x"),
        ("api says sk-123456", "api says ***"),
        ("it is true", "it is true"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("/var/run/token", "/var/run/token"),
        ("10.0.0.1234", "10.0.0.1234"),
    ],
)
def test_what_is_secret_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, masked: str) -> None:
    monkeypatch.setenv("LAKE", "of the lake")
    environment = {
        "OPENAI_API_KEY": "sk-123456",
        "USE_TOKEN": "true",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "TOKENS_SERVICE_HOST": "10.0.0.1234",
        "HOME": "it is ",
    }

    assert secrets_of(settings(tmp_path), environment).mask(text) == masked
