"""What the tests' own servers promise: without these answers, a green test elsewhere would prove nothing."""

import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import psutil
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate

from devtools.rest_catalog import RestCatalog
from devtools.s3_server import S3Server
from devtools.server_process import ServerFailed
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})


def fresh_bucket(server: S3Server) -> str:
    return server.make_bucket(f"contract-{secrets.token_hex(6)}")


def catalog_of(server: RestCatalog) -> Catalog:
    return load_catalog("contract", **server.pyiceberg_properties)


def ended(process: psutil.Process) -> bool:
    """Also as a zombie: in a container, nobody may be there to reap an orphan."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def listening_addresses(pid: int) -> set[str]:
    found = psutil.Process(pid).net_connections(kind="tcp")
    return {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}


def test_the_second_create_of_an_object_is_refused(s3_server: S3Server) -> None:
    store = s3_server.store(fresh_bucket(s3_server))
    obstore.put(store, "runs/r1/seal", b"first", mode="create")

    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "runs/r1/seal", b"second", mode="create")

    assert bytes(obstore.get(store, "runs/r1/seal").bytes()) == b"first"


def test_of_twenty_racing_creators_one_wins(s3_server: S3Server) -> None:
    bucket = fresh_bucket(s3_server)
    stores = [s3_server.store(bucket) for _ in range(20)]

    def create(path: str, creator: int) -> int | None:
        try:
            obstore.put(stores[creator], path, str(creator).encode(), mode="create")
        except AlreadyExistsError:
            return None
        return creator

    with ThreadPoolExecutor(20) as creators:
        for race in range(10):
            path = f"race-{race}"
            winners = [winner for winner in creators.map(create, [path] * 20, range(20)) if winner is not None]
            assert len(winners) == 1
            assert bytes(obstore.get(stores[0], path).bytes()) == str(winners[0]).encode()


def test_a_killed_s3_server_comes_back_with_its_objects(tmp_path: Path) -> None:
    with S3Server(tmp_path) as server:
        bucket = fresh_bucket(server)
        obstore.put(server.store(bucket), "kept", b"still here", mode="create")
        server.kill()
        server.start()

        with pytest.raises(AlreadyExistsError):
            obstore.put(server.store(bucket), "kept", b"lost", mode="create")


def append_and_read_back(catalog: Catalog) -> None:
    namespace = f"contract_{secrets.token_hex(6)}"
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.rows", schema=ROWS.schema)
    table.append(ROWS)

    assert catalog.load_table(f"{namespace}.rows").scan().to_arrow().equals(ROWS)


def test_a_table_in_the_rest_catalog_holds_what_was_appended(rest_catalog: RestCatalog) -> None:
    append_and_read_back(catalog_of(rest_catalog))


def test_the_rest_catalog_can_keep_its_tables_on_the_s3_server(s3_server: S3Server, tmp_path: Path) -> None:
    with RestCatalog(tmp_path, s3=s3_server) as server:
        append_and_read_back(catalog_of(server))


def test_the_rest_catalog_refuses_a_commit_on_an_old_head(rest_catalog: RestCatalog) -> None:
    catalog = catalog_of(rest_catalog)
    namespace = f"contract_{secrets.token_hex(6)}"
    catalog.create_namespace(namespace)
    table = catalog.create_table(f"{namespace}.rows", schema=ROWS.schema)
    old_head = AssertRefSnapshotId(ref="main", snapshot_id=None)
    table.append(ROWS)

    with pytest.raises(CommitFailedException):
        catalog.commit_table(table, (old_head,), (SetPropertiesUpdate(updates={"seen": "no"}),))

    assert "seen" not in catalog.load_table(f"{namespace}.rows").properties


def test_a_killed_rest_catalog_comes_back_with_its_tables(tmp_path: Path) -> None:
    with RestCatalog(tmp_path) as server:
        catalog = catalog_of(server)
        catalog.create_namespace("kept")
        catalog.create_table("kept.rows", schema=ROWS.schema).append(ROWS)
        server.kill()
        server.start()

        assert catalog_of(server).load_table("kept.rows").scan().to_arrow().num_rows == ROWS.num_rows


@pytest.mark.parametrize("make", [S3Server, RestCatalog])
def test_a_server_listens_on_loopback_only_and_is_gone_afterwards(
    make: Callable[[Path], S3Server | RestCatalog], tmp_path: Path
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with make(tmp_path) as server:
        pid = server.pid
        addresses = listening_addresses(pid)

    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert not psutil.pid_exists(pid)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_server_does_not_outlive_killed_tests(tmp_path: Path) -> None:
    starter = (
        "import pathlib, sys, time\n"
        "from devtools.s3_server import S3Server\n"
        "with S3Server(pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", starter, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        server = psutil.Process(int(tests.stdout.readline()))
        tests.kill()

    until(lambda: ended(server), "the server to end with who started it")


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = S3Server(tmp_path)
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", int(server.endpoint.rsplit(":", 1)[1])))
        with pytest.raises(ServerFailed, match="in use"):
            server.start()
