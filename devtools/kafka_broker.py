"""A Kafka broker: one JVM that is its own controller (KRaft). What it refuses, and what it forgets, is what production meets."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devtools import build_tools, cache, maven
from devtools.ports import LOOPBACK, free_port
from devtools.server_process import Server, ServerProcess

KAFKA: Final = "4.3.1"
JARS: Final = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")
#: The log that says why it does not start; of a running broker, only warnings.
_LOG_LEVEL: Final = "warn"
#: It looks often for what is to be deleted or compacted, so that tests do not wait for that.
_SOON: Final = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
#: For one broker, with little memory: by default each of the two internal topics has fifty partitions, and the cleaner 128 MiB.
_SMALL: Final = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
}


def broker_jars() -> Path:
    return cache.ensure(f"kafka-{KAFKA}", lambda target: maven.copy_jars(JARS, target, transitive=True))


class KafkaBroker(Server):
    """Runs inside `with`. Stopped or killed, it can be started again: same ports, same topics.

    `servers` asks for no credentials; `servers_with_password`, which is another listener of the same broker, does (SASL PLAIN).
    """

    def __init__(self, directory: Path, host: str = LOOPBACK) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        plain, with_password, controller = (free_port(host) for _ in range(3))
        self.servers = f"{host}:{plain}"
        self.servers_with_password = f"{host}:{with_password}"
        self.user, self.password = "reader", secrets.token_hex(8)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{host}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.servers},SASL_PLAINTEXT://{self.servers_with_password},"
            f"CONTROLLER://{host}:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
            f'required user_{self.user}="{self.password}";',
            "log.dirs": str((directory / "log").absolute()),
            "auto.create.topics.enable": "false",
            **_SOON,
            **_SMALL,
        }
        self._configuration = directory / "server.properties"
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        scratch = directory / "scratch"
        scratch.mkdir(exist_ok=True)
        self._java = [
            build_tools.find("java"),
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            f"-Djava.io.tmpdir={scratch.absolute()}",
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={_LOG_LEVEL}",
            *("-cp", f"{broker_jars()}/*"),
        ]
        self._is_formatted = False
        self._process = ServerProcess(
            [*self._java, "kafka.Kafka", str(self._configuration)],
            host=host,
            port=plain,
            is_ready=self._answers,
            log=directory / "kafka_broker.log",
            environment={},
        )

    def start(self) -> None:
        if not self._is_formatted:
            # In one word, as an id may begin with a hyphen.
            cluster = [f"--cluster-id={secrets.token_urlsafe(16)}", f"--config={self._configuration}"]
            build_tools.run([*self._java, "kafka.tools.StorageTool", "format", *cluster])
            self._is_formatted = True
        super().start()

    def client_properties(self, **more: str) -> Mapping[str, str]:
        """For the clients of confluent_kafka."""
        return {"bootstrap.servers": self.servers, "log_level": "0", **more}

    def _answers(self) -> bool:
        try:
            return bool(AdminClient(dict(self.client_properties())).list_topics(timeout=2).brokers)
        except KafkaException:
            return False
