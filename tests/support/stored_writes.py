"""Checkpoint stores in any state, put together through the ledger as drivers and runners do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from checkpoint_protocol import writes
from checkpoint_protocol.identity import EpochKey
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.spec import CheckpointedWrite, parse_manifest
from checkpoint_protocol.places.storage import StorageSettings
from checkpoint_protocol.records import Began, ClaimRecord, CommitRecord, FailureRecord, IcebergBase, StageIdentity, WriteRecord
from checkpoint_protocol.store import layout
from checkpoint_protocol.store.object_store import ObstoreStore, open_store
from tests.support.records import DIGEST, TOKEN, iceberg_file, input_of, launch, plan, rows_file, seal

UID = "00000000000000aa"


@dataclass
class StoredWrite:
    """One write in a store on disk, of a given manifest or a plain one. Each method does what a runner or driver does."""

    folder: Path
    name: str = "nightly"
    uid: str = UID
    run_nonce: str = ""
    epoch: int = 1
    #: The folder of a stage, which the methods are about then.
    stage: str = ""
    given: CheckpointedWrite | None = None
    store: ObstoreStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(str(self.uri), StorageSettings())

    @property
    def uri(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.store, EpochKey(self.uid, self.epoch, self.stage))

    @property
    def manifest(self) -> CheckpointedWrite:
        if self.given is not None:
            return self.given
        return parse_manifest(
            {
                "apiVersion": "checkpointed.dev/v1alpha1",
                "kind": "CheckpointedWrite",
                "metadata": {"name": self.name},
                "spec": {
                    "source": {"files": {"format": "parquet", "paths": ["/in"]}},
                    "sink": {"iceberg": {"catalog": "lake", "table": "db.rows"}},
                    "checkpoint": {"uri": str(self.uri)},
                    "runNonce": self.run_nonce,
                },
            }
        )

    @property
    def file(self) -> Path:
        """The manifest, written to a file."""
        file = self.folder / f"{self.name}.yaml"
        file.write_text(yaml.safe_dump(self.manifest.model_dump(mode="json", by_alias=True)))
        return file

    def begin(self) -> None:
        writes.name_write(self.store, "default", self.name, self.uid)
        spec = self.manifest.spec
        writes.put_write(
            self.store,
            WriteRecord(
                token=TOKEN,
                uid=self.uid,
                namespace="default",
                name=self.name,
                identity=spec.identity,
                identity_digest=spec.identity_digest,
            ),
        )

    def launch(
        self, attempt: int = 1, counted: tuple[int, ...] = (), digest: str = DIGEST, began: Began | None = None, reads: str = ""
    ) -> None:
        """`reads`: the stage of a pipeline before."""
        record = launch(attempt, counted, code_digest=digest)
        stage = StageIdentity(name="embed", algorithm=1, hash_in="a" * 64, reads=reads) if reads else None
        now = {"run_nonce": self.run_nonce, "source": self.manifest.spec.source, "began": began, "stage": stage}
        self.ledger.attempts.put_launch(record.model_copy(update=now))

    def plan(self, attempt: int = 1, tasks: int = 2) -> None:
        """Fix the input, one file for each task, and plan."""
        files = [rows_file(10, path=f"/in/part-{number}.parquet") for number in range(tasks)]
        self.ledger.inputs.put_input(input_of(*files))
        self.ledger.plans.put_plan(plan(*[[(number, 0, 10)] for number in range(tasks)], attempt=attempt))

    def seal(self, task: int, link: int = 0, *, attempt: int = 1, last: bool = True, rows: int = 10) -> None:
        files = [iceberg_file(f"{attempt}-{task}-{link}.parquet", rows)]
        self.ledger.seals.put_seal(seal(task, link, [(task, 0, rows)], attempt=attempt, last=last, files=files, rows=rows))

    def close(self, attempt: int = 1) -> None:
        self.ledger.chains.close(attempt)

    def fail(self, family: str, reason: str, message: str, attempt: int = 1) -> None:
        self.ledger.attempts.put_failure(
            FailureRecord.model_validate(
                {"token": TOKEN, "attempt": attempt, "family": family, "reason": reason, "message": message}
            )
        )

    def claim(self, snapshot_id: int | None = 7) -> None:
        self.ledger.commits.put_claim(
            ClaimRecord(token=TOKEN, index=0, base=IcebergBase(table_uuid="the-table", snapshot_id=snapshot_id))
        )

    def record_commit(self, commit_id: int | None = 8, rows: int = 20, failed: int = 0, failed_before: int = 0) -> None:
        self.ledger.commits.put_commit(
            CommitRecord(
                token=TOKEN,
                key=str(self.ledger.key),
                target="lake.db.rows",
                table_identity="the-table",
                commit_id=commit_id,
                rows_read=rows,
                rows_written=rows,
                files=2,
                attempts=1,
                code_digests=(DIGEST,),
                rows_quarantined=failed,
                rows_quarantined_before=failed_before,
            )
        )

    def commit(self) -> None:
        """Do a whole epoch of one attempt."""
        self.launch()
        self.plan()
        self.seal(0)
        self.seal(1)
        self.close()
        self.claim()
        self.record_commit()

    def break_record(self, path: str) -> None:
        """Cut a record off in its middle, as a failing disk does."""
        file = self.uri / path
        file.write_bytes(file.read_bytes()[:20])

    def name_path(self) -> str:
        return layout.name_path("default", self.name)
