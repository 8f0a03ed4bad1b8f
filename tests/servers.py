"""One server of each kind for the whole run; tests keep apart by names of buckets, namespaces and topics.

A test that stops or kills a server starts one of its own.
"""

from collections.abc import Iterator

import pytest

from devtools.azure_server import AzureServer
from devtools.gcs_server import GcsServer
from devtools.glue_server import GlueServer
from devtools.kafka_broker import KafkaBroker
from devtools.kubernetes.api_server_only import ApiServer, start_api_server_only
from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3_server")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    with AzureServer(tmp_path_factory.mktemp("azure_server")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    with GcsServer(tmp_path_factory.mktemp("gcs_server")) as server:
        yield server


@pytest.fixture(scope="session")
def glue_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlueServer]:
    with GlueServer(tmp_path_factory.mktemp("glue_server")) as server:
        yield server


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("rest_catalog")) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka_broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with start_api_server_only(tmp_path_factory.mktemp("api_server")) as server:
        yield server
