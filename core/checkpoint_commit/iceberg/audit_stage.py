"""The audit of what an epoch has put on the branch of its write: a stage of the epoch, whose drivers call `sink.audit`.

The stage's name says which snapshot is audited, what it consists of and by which function. Its attempts have the digest of the
code: where one ends as the function refuses the rows, another one follows once the code is edited, as with steps that fail.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

from checkpoint_commit.iceberg import audit as iceberg_audit
from checkpoint_commit.iceberg.audit import Staged
from checkpoint_commit.iceberg.audited_table import PyicebergAuditedTable
from checkpoint_commit.none.sink import NothingStaged
from checkpoint_commit.outcomes import CommitOutcome
from checkpoint_commit.ports import NeedsStage, Stage
from checkpoint_commit.results import Results
from checkpoint_protocol.ledger import Ledger
from checkpoint_protocol.manifest.row_errors import Quarantine
from checkpoint_protocol.manifest.sources.source import IcebergSource, Source
from checkpoint_protocol.manifest.spec import Spec
from checkpoint_protocol.tables.iceberg import IcebergSink


@dataclass(frozen=True, slots=True)
class Audits:
    """Those of one sink."""

    named: IcebergSink
    function: str

    def commit(self, table: PyicebergAuditedTable, ledger: Ledger, results: Results) -> CommitOutcome | NeedsStage:
        """Put the results where they are audited; commit them once a stage of the epoch says that they have passed."""

        def has_passed(staged: Staged) -> bool:
            key = ledger.key.of_stage(self._name(staged))
            return dataclasses.replace(ledger, key=key).commits.read_commit() is not None

        outcome = iceberg_audit.commit(table, ledger, results, has_passed)
        return NeedsStage(self._stage(table, outcome)) if isinstance(outcome, Staged) else outcome

    def _name(self, staged: Staged) -> str:
        digest = hashlib.sha256(f"{staged.manifest_list}\0{self.function}".encode()).hexdigest()
        return f"audit-{staged.snapshot_id}-{digest[:8]}"

    def _stage(self, table: PyicebergAuditedTable, staged: Staged) -> Stage:
        source = IcebergSource(catalog=self.named.catalog, table=self.named.table, snapshot_id=staged.snapshot_id)

        def derive(spec: Spec) -> Spec:
            return spec.model_copy(
                update={
                    "source": Source(iceberg=source),
                    "steps": (),
                    "on_row_error": "Fail",
                    "quarantine": Quarantine(),
                    "on_replaced": "Fail",
                }
            )

        return Stage(
            self._name(staged),
            derive,
            NothingStaged(),
            pin_source=lambda: (table.pin_staged(staged.snapshot_id, source),),
            runs_code=True,
            audit=self.function,
        )
