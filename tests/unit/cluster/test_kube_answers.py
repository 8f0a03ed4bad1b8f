"""What the API server's refusals of a Secret become: a word for a person, another round, or nothing where it is there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes import client

from checkpoint_operator.kube.client import KubernetesApi
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import Retryable

SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "daily-keys"}, "data": {"a": "Z2VoZWlt"}}


@dataclass
class Answer:
    status: int
    message: str
    reason: str | None = None

    def read(self) -> bytes:
        return json.dumps({"kind": "Status", "code": self.status, "message": self.message, "reason": self.reason}).encode()


class Answers(client.ApiClient):
    """A client whose server gives one answer to everything."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(client.Configuration())
        self.answer = answer

    def call_api(self, *request: Any, **options: Any) -> Any:
        return self.answer


def create(status: int, message: str, reason: str | None = None) -> None:
    KubernetesApi(Answers(Answer(status, message, reason))).create_secret("team", SECRET)


def test_a_secret_that_is_there_is_as_good_as_made() -> None:
    create(409, 'secrets "daily-keys" already exists', "AlreadyExists")


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        # Nothing was made: the pod would wait for it for ever.
        (409, 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified', reasons.API_CONFLICT),
        (403, 'secrets "daily-keys" is forbidden: exceeded quota: q', reasons.POD_REFUSED),
        (422, 'Secret "daily-keys" is invalid', reasons.POD_REFUSED),
        (403, 'secrets is forbidden: User "o" cannot create resource "secrets" in API group ""', reasons.API_FORBIDDEN),
        (500, "later", reasons.API_UNAVAILABLE),
    ],
)
def test_a_secret_that_is_not_made_is_told_and_tried_again_and_its_contents_are_not(
    status: int, message: str, reason: str
) -> None:
    with pytest.raises(Retryable) as refused:
        create(status, message)

    assert refused.value.reason == reason
    assert message in refused.value.message
    assert "Z2VoZWlt" not in refused.value.message
