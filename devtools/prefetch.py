"""Makes every cache entry up front: downloads are then seen for what they are, and no test's time limit pays for them."""

import sys
import time
from collections.abc import Callable

from devtools.azure_server import azurite_script
from devtools.build_tools import BuildToolFailed, BuildToolMissing
from devtools.cache import cache_root
from devtools.gcs_server import gcs_binary
from devtools.kafka_broker import broker_jars
from devtools.kubernetes import binaries, machine, parts, project_images
from devtools.rest_catalog import server_classes
from devtools.s3_server import gateway_binary
from devtools.spark_avro import spark_avro
from devtools.spark_classes import spark_classes
from devtools.spark_iceberg import iceberg_spark_runtime

ENTRIES: tuple[tuple[str, Callable[[], object]], ...] = (
    ("S3 server (versitygw, built with Go)", gateway_binary),
    ("Google Cloud Storage (fake-gcs-server, built with Go)", gcs_binary),
    ("Azure's emulator (Azurite, 190 MB by npm)", azurite_script),
    ("Iceberg REST catalog (100 MB of jars by Maven)", server_classes),
    ("Kafka broker (44 MB of jars by Maven)", broker_jars),
    ("Iceberg runtime for Spark (one jar by Maven)", iceberg_spark_runtime),
    ("Avro for Spark (one jar by Maven)", spark_avro),
    ("class data of Spark (for each environment, about a minute)", spark_classes),
    ("etcd (built with Go)", binaries.etcd),
    ("Kubernetes' API server, controllers and kubectl (built with Go, for minutes)", binaries.control_plane),
    ("helm (built with Go, for minutes)", binaries.helm),
    ("kube-score (built with Go, for a minute)", binaries.kube_score),
    ("kstatus and Argo CD's Lua (built with Go)", binaries.health),
)

#: What only a machine can use on which a cluster can run.
FOR_PODS: tuple[tuple[str, Callable[[], object]], ...] = (
    *((title, make) for title, make in parts.PARTS if make not in dict(ENTRIES).values()),
    ("the operator's image", lambda: project_images.build("operator")),
    ("Spark's image", lambda: project_images.build("spark")),
)


def main() -> int:
    print(f"test services, kept in {cache_root()}", flush=True)
    for title, make in (*ENTRIES, *(FOR_PODS if machine.why_impossible() is None else ())):
        print(f"  {title} ...", end=" ", flush=True)
        started = time.monotonic()
        try:
            make()
        except BuildToolMissing as missing:
            # The tests that need it are skipped by name, or fail where CHECKPOINTED_WRITES_REQUIRE_ALL says so.
            print(f"left out: {missing}", flush=True)
            continue
        except BuildToolFailed as failure:
            print(f"failed\n{failure}", flush=True)
            return 1
        print(f"ready, {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
