"""A write that is run and looked at from Python, on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal

from checkpointed_writes.answers import Preview, PreviewFailure, Result, WriteFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

    from checkpoint_local.cli.commands.run import Ran
    from checkpoint_protocol.manifest.spec import CheckpointedWrite
    from checkpoint_protocol.places.settings import Settings

#: A manifest's file, or the manifest itself as a dict. In a dict, relative paths are relative to the working directory, and a
#: function, or a class, stands for its name: {"call": steps.embed}.
Manifest = str | os.PathLike[str] | Mapping[str, Any]
Fields = Mapping[str, Any]

_CHECKPOINTS: Final = "checkpoints"
#: Of the spec, what an option adds to and does not replace.
_ADDED_TO: Final = ("checkpoint",)


@dataclass(frozen=True, slots=True)
class Write:
    """One write, of a manifest.

    What `Rows` makes has the name of its table unless `name` says another, and seals finished rows in `checkpoint`, by default
    the folder `checkpoints` beside the Lance dataset, or in the working directory. Both are part of what a write is: under
    another name, or with another checkpoint, it begins anew. `settings` is the file with catalogs and storage, by default found
    as the command finds it.

    Each method raises WriteFailed, with the reason and what to do, where it cannot do what it says.
    """

    manifest: Manifest
    settings: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, manifest: Manifest, *, settings: str | os.PathLike[str] | None = None) -> Write:
        """Return the write of a manifest: a file, as `checkpointed-write run FILE` has it, or a dict."""
        return cls(manifest, settings)

    @classmethod
    def built(
        cls,
        spec: Fields,
        name: str | None,
        checkpoint: str | os.PathLike[str] | None,
        settings: str | os.PathLike[str] | None,
    ) -> Write:
        """Return the write of a spec whose fields have names in snake_case."""
        from checkpoint_protocol.manifest.spec import API_VERSION, KIND, Spec
        from checkpointed_writes.choices import label_of, plain_section

        table, beside = _table_of(spec["sink"])
        spec = {**spec, "checkpoint": {"uri": checkpoint or beside}}
        metadata = {"name": name or label_of(table)}
        return cls({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": plain_section(Spec, spec)}, settings)

    # --- what else it is told -------------------------------------------------------------------------------------------------

    def options(
        self,
        *,
        checkpoint: Fields | None = None,
        on_row_error: Literal["fail", "quarantine"] | None = None,
        quarantine: Fields | None = None,
        on_code_change: Literal["continue", "restart", "ask"] | None = None,
        on_replaced: Literal["fail", "process", "skip"] | None = None,
        trigger: Fields | None = None,
        reset: Fields | None = None,
        inherit: str | None = None,
        run_nonce: str | None = None,
        backoff_limit: int | None = None,
        progress_deadline_seconds: int | None = None,
        active_deadline_seconds: int | None = None,
        ttl_seconds_after_finished: int | None = None,
        suspend: bool | None = None,
        on_recreate: Literal["attach", "new"] | None = None,
        deletion_policy: Literal["retain", "forget"] | None = None,
        code: Fields | None = None,
        image: str | None = None,
        service_account_name: str | None = None,
        storage_secret_name: str | None = None,
        driver: Fields | None = None,
        executor: Fields | None = None,
        spark_conf: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> Write:
        """Return the write with these fields of the manifest's spec; those that have fields themselves are mappings.

        write.options(on_row_error="quarantine", checkpoint={"interval": "30s"}, trigger={"every": "5m"})
        """
        from checkpoint_protocol.manifest.spec import Spec
        from checkpointed_writes.choices import plain_section

        given = {name: value for name, value in locals().items() if name in Spec.model_fields}
        document = self._document()
        spec = dict(document["spec"])
        for name, value in plain_section(Spec, given).items():
            spec[name] = {**spec.get(name, {}), **value} if name in _ADDED_TO else value
        metadata = document["metadata"] if namespace is None else {**document["metadata"], "namespace": namespace}
        return replace(self, manifest={**document, "metadata": metadata, "spec": spec})

    # --- what it does ---------------------------------------------------------------------------------------------------------

    def run(
        self, *, cores: int | None = None, approve: Literal["Continue", "Restart"] | None = None, again: bool = False
    ) -> Result:
        """Run the write to its commit, or resume it, as `checkpointed-write run` does; how far it is goes to stderr.

        `cores`: how many tasks run at once, by default all. `approve`: with onCodeChange: Ask, what becomes of results of other
        code than that of now. `again`: if the write is committed, begin its next epoch, with what is new in the source, as a new
        runNonce does. Interrupt it at any moment, and run it again: what was sealed is not computed again.
        """
        with self._loaded() as (manifest, settings):
            from checkpoint_local.cli.commands.run import run_write
            from checkpoint_local.cli.printing import messages

            return _result(run_write(manifest, settings, cores, messages(), approve=approve, again=again), self.file)

    def preview(self, rows: int = 20, *, stage: str | None = None) -> Preview:
        """Run the steps on the first rows of the source, and write nothing.

        With a `stage` it is the steps of that one, on rows that the stage before has sealed in the checkpoint store. Rows on
        which a step fails are in the answer, whatever onRowError says. What the steps print goes to stderr.
        """
        with self._loaded() as (manifest, settings):
            from checkpoint_local.preview import preview

            found = preview(manifest, settings, rows, stage)
        failed = tuple(PreviewFailure(one.row, one.step, one.error, one.message) for one in found.failed)
        return Preview(found.rows, found.rows_read, failed, found.notice)

    def validate(self) -> dict[str, Any]:
        """Return all that is wrong with the write, and what a run would do, as `checkpointed-write validate -o json`."""
        with self._failing():
            from checkpoint_local.cli.commands.validate import report_of

            return _plain(report_of(self._manifest, self._settings, Path(self.file)))

    def plan(self) -> dict[str, Any]:
        """Return what a run would do with each stage, and the files of the code, as `checkpointed-write plan -o json`."""
        with self._located() as (manifest, settings):
            from checkpoint_local.cli.commands.plan import plan_of

            return _plain(plan_of(manifest, settings))

    def status(self) -> dict[str, Any]:
        """Return where the write stands, as `checkpointed-write status -o json`."""
        with self._located() as (manifest, settings):
            from checkpoint_local.cli.commands.status import status_of

            return _plain(status_of(manifest, settings))

    def failed(self, columns: Sequence[str] = (), *, epoch: int | None = None) -> pa.Table:
        """Return the rows that failed in an epoch, by default in the last one that has any, as `checkpointed-write failed`.

        `columns` are read from the source, where it is as it was. They are NULL where a row cannot be read any more.
        """
        with self._located() as (manifest, settings):
            import pyarrow as pa

            from checkpoint_local.cli.commands.failed import find_failed

            found = find_failed(manifest, settings, epoch, columns)
            return pa.Table.from_batches(found.batches(), found.schema)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a page about the write, as `checkpointed-write report` does, and return its file."""
        with self._located() as (manifest, settings):
            from checkpoint_local.cli.commands.report import page_of, path_of

            report, page = page_of(manifest, settings)
            file = Path(path) if path is not None else path_of(report)
            file.write_text(page, encoding="utf-8")
            return file

    def forget(self, *, force: bool = False) -> str:
        """Remove the records of the write, as `checkpointed-write forget FILE --yes` does, and return what was removed.

        Committed rows stay in the table: with the mode append, the next run appends them once more. `force`: as the option.
        """
        with self._located() as (manifest, settings):
            from checkpoint_local.cli.commands.forget import forget_write

            return forget_write(manifest, settings, force)

    def apply(self, namespace: str | None = None) -> None:
        """Apply the write to the cluster that kubectl talks to, in its namespace; see `wait`. Applied again, it changes it.

        Code in a folder of this machine is applied as a ConfigMap. Source, sink and checkpoint must be places of the cluster.
        """
        write = self if namespace is None else self.options(namespace=namespace)
        with write._loaded() as (manifest, settings):
            _need_cluster()
            from checkpointed_writes.cluster import apply

            apply(manifest, settings)

    def wait(self, namespace: str | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the write is committed in the cluster, and return its status; WriteFailed if it is stalled.

        `timeout`: for so many seconds at most.
        """
        with self._loaded() as (manifest, _):
            _need_cluster()
            from checkpointed_writes.cluster import wait

            return wait(namespace or manifest.metadata.namespace, manifest.metadata.name, timeout)

    def to_yaml(self) -> str:
        """Return the manifest, as `checkpointed-write run` and `kubectl apply` take it."""
        with self._loaded() as (manifest, _):
            import yaml

            return yaml.safe_dump(_plain(manifest, exclude_unset=True, exclude_none=True), sort_keys=False, allow_unicode=True)

    # --- inside ---------------------------------------------------------------------------------------------------------------

    @property
    def file(self) -> str:
        """The manifest's file, as commands that a message names have it."""
        return "FILE" if isinstance(self.manifest, Mapping) else str(self.manifest)

    def _document(self) -> Mapping[str, Any]:
        if isinstance(self.manifest, Mapping):
            return self.manifest
        with self._loaded() as (manifest, _):
            return _plain(manifest, exclude_unset=True)

    @contextmanager
    def _loaded(self) -> Iterator[tuple[CheckpointedWrite, Settings]]:
        with self._failing():
            yield self._manifest(), self._settings()

    @contextmanager
    def _located(self) -> Iterator[tuple[CheckpointedWrite, Settings]]:
        """Load both, and know the tables of namespaces by their URIs, as records do."""
        from checkpoint_commit.catalogs.vended import with_keys_of_tables
        from checkpoint_commit.lance.namespaces import located

        with self._loaded() as (manifest, settings):
            spec = located(manifest.spec, settings)
            yield manifest.model_copy(update={"spec": spec}), with_keys_of_tables(spec, settings)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise WriteFailed for what fails inside."""
        from checkpoint_local.cli.entry import why_not_local

        if (why := why_not_local()) is not None:
            raise ImportError(why)
        from checkpoint_protocol.errors import CheckpointError

        try:
            yield
        except CheckpointError as error:
            raise WriteFailed(error.reason, error.message) from error

    def _manifest(self) -> CheckpointedWrite:
        from checkpoint_local.cli.files import load_manifest, manifest_of
        from checkpointed_writes.documents import plain_manifest

        if isinstance(self.manifest, Mapping):
            return manifest_of(plain_manifest(self.manifest), Path.cwd())
        return load_manifest(Path(self.manifest))

    def _settings(self) -> Settings:
        from checkpoint_local.cli.files import find_settings, load_settings

        given = Path(self.settings) if self.settings is not None else None
        return load_settings(find_settings(given, None if isinstance(self.manifest, Mapping) else Path(self.manifest)))


def _need_cluster() -> None:
    if find_spec("kubernetes") is None:
        raise ImportError("writes are applied with what the extra `cluster` installs; run: pip install '.[local,cluster]'")


def _table_of(sink: Fields) -> tuple[str, str]:
    """Return what a table is called, and the folder for checkpoints beside it."""
    if "lance" in sink and sink["lance"]["uri"] is not None:
        uri = os.fspath(sink["lance"]["uri"]).rstrip("/")
        folder, separator, last = uri.rpartition("/")
        return PurePosixPath(last).stem, f"{folder}{separator}{_CHECKPOINTS}"
    named = sink.get("iceberg") or sink.get("lance") or {}
    return (named.get("table") or "").rpartition(".")[2], _CHECKPOINTS


def _plain(answer: BaseModel, **options: Any) -> dict[str, Any]:
    return answer.model_dump(mode="json", by_alias=True, **options)


def _result(ran: Ran, file: str) -> Result:
    from checkpoint_control.decision.actions import Stall
    from checkpoint_local.cli import committed
    from checkpoint_local.cli.printing import messages
    from checkpoint_protocol import reasons

    if isinstance(ran.ended.outcome, Stall):
        raise WriteFailed(ran.ended.outcome.reason, ran.ended.outcome.message)
    found = ran.ended.last_commit
    if found is None:
        raise WriteFailed(reasons.STREAM_ENDED, "the stream has had no rows by now: there is nothing in the table")
    commit, recorded, console = found[1], committed.recorded(*found), messages()
    presence = committed.find_presence(recorded, ran.runner.manifest.spec.sink, ran.runner.settings, console)
    if (lost := committed.loss(presence, recorded, file)) is not None:
        raise WriteFailed(lost.reason, lost.message)
    committed.say(presence, recorded, file, console)
    return Result(
        table=commit.target,
        version=commit.commit_id,
        rows_read=commit.rows_read,
        rows_written=commit.rows_written,
        rows_quarantined=commit.rows_failed,
        files=commit.files,
        attempts=commit.attempts,
        key=commit.key,
        seconds=ran.elapsed_s,
        was_committed=not ran.display.did_work,
    )
