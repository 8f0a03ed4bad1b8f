"""Watch the cluster and wake the work queue. The only module that knows Kopf, of which we use watching and nothing else.

Raw events only: Kopf writes nothing onto any object, and keeps no state of its own.

Kopf ends when one of its watches is refused for about a minute. Here the refusal of one namespace concerns that namespace: it is
asked for again and again, while the others go on.

Where the API server answers that it does not know the kind, the process is to end: Kopf looks for the kinds of the cluster once,
when it begins, and would wait in silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import aiohttp
import kopf

from checkpoint_operator.kube.client import PAGE, PLURAL
from checkpoint_operator.pods.driver_pod import DRIVER_CONTAINER, ROLE_LABEL
from checkpoint_operator.watch.answers import PODS, Hearing, answers_into
from checkpoint_operator.watch.cache import Cache, WriteName
from checkpoint_operator.watch.watch_errors import WatchErrors
from checkpoint_protocol import reasons
from checkpoint_protocol.errors import CheckpointError, NeedsChange, Retryable
from checkpoint_protocol.manifest.spec import API_VERSION

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Pauses:
    """1, 2, 4 ... 30, 30 ... s, for as long as it takes. Each iteration begins at the first."""

    first_s: float = 1.0
    most_s: float = 30.0

    def __iter__(self) -> Iterator[float]:
        return (min(self.most_s, self.first_s * 2 ** min(number, 30)) for number in itertools.count())


_PAUSES: Final = Pauses()
#: A watch that is silent may be dead: it is begun anew now and then.
_WATCH_S: Final = 270
#: Kopf itself gives its tasks 5 s.
_KOPF_ENDS_S: Final = 8.0
_MOST_CANCELS: Final = 50
_BETWEEN_CANCELS_S: Final = 0.2


def watch(
    cache: Cache,
    wake: Callable[[WriteName], None],
    namespaces: Sequence[str],
    errors: WatchErrors,
) -> None:
    """Feed the cache and wake a write's key at each event, until the process is told to end (SIGTERM, SIGINT).

    No namespaces: all of them. Raises NeedsChange if the cluster does not know the kind any more, Retryable if watches that
    ended could not be cleared away: in both cases only another process can watch.
    """
    # Not asyncio.run, which would wait for good for a task that cannot be cancelled.
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(watch_until(asyncio.Event(), cache, wake, namespaces, errors))
    finally:
        loop.close()


async def watch_until(
    stop: asyncio.Event,
    cache: Cache,
    wake: Callable[[WriteName], None],
    namespaces: Sequence[str],
    errors: WatchErrors,
    pauses: Pauses = _PAUSES,
    watch_s: int = _WATCH_S,
) -> None:
    """Watch until `stop` is set, or the process is told to end. What else ends Kopf begins it anew, with a list of all."""
    registry = _registry(cache, wake, errors, pauses)
    again = iter(pauses)
    while not stop.is_set():
        began = time.monotonic()
        try:
            await _run_kopf(stop, registry, _settings(pauses, watch_s), namespaces)
        except CheckpointError:
            raise
        except Exception:
            if errors.is_unknown(PLURAL):
                raise NeedsChange(
                    reasons.API_UNAVAILABLE,
                    "the cluster does not know CheckpointedWrites any more: apply the files of crds/ again; until then the"
                    " operator ends each time that it is started",
                ) from None
            # An answer that is no answer, for example: others than we mend it.
            _log.exception("the watches ended, and are begun anew")
        if time.monotonic() - began > 2 * pauses.most_s:
            again = iter(pauses)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), next(again))


async def _run_kopf(
    stop: asyncio.Event, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, namespaces: Sequence[str]
) -> None:
    """Run Kopf until `stop` is set, or one of its tasks has ended; leave none of its tasks behind. Raises what ended it."""
    others = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(None)
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings,
        namespaces=list(namespaces),
        clusterwide=not namespaces,
        standalone=True,
        stop_flag=stop,
    )
    if threading.current_thread() is threading.main_thread():
        # Kopf's own would do nothing once its tasks have begun to end.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
    run = asyncio.create_task(kopf.run_tasks(tasks, ignored=others), name="kopf")
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    # What fails because it is ended is told by nobody else, and says nothing.
    loop.set_exception_handler(lambda _, context: _log.debug("while the watches end: %s", context.get("message")))
    # A task that ignores that it is cancelled, as one that opens a stream at that moment does, is never cancelled again by
    # Kopf, which waits for it for good.
    await asyncio.wait([run], timeout=_KOPF_ENDS_S)
    for _ in range(_MOST_CANCELS):
        left = asyncio.all_tasks() - others - {run}
        if run.done() and not left:
            break
        for task in left:
            task.cancel()
        await asyncio.wait({run, *left}, timeout=_BETWEEN_CANCELS_S, return_when=asyncio.ALL_COMPLETED)
    else:
        run.cancel()
        raise Retryable(reasons.API_UNAVAILABLE, "the watches ended and could not be begun anew")
    run.result()


def _registry(cache: Cache, wake: Callable[[WriteName], None], errors: WatchErrors, pauses: Pauses) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    group, version = API_VERSION.split("/")
    logins = _Logins(errors, pauses, answers_into(Hearing(cache, wake)))

    @kopf.on.login(registry=registry)
    async def _log_in(**context: Any) -> kopf.AiohttpSession:
        # Asked again when the credentials are refused: a service account's token is renewed in its file.
        return await logins.log_in(**context)

    # So that Kopf watches them. What it tells is in the cache before Kopf sees the answer.
    @kopf.on.event("", "v1", PODS, registry=registry)
    @kopf.on.event(group, version, PLURAL, registry=registry)
    async def _changed(**_: Any) -> None:
        """Nothing is left to do."""

    return registry


def _settings(pauses: Pauses, watch_s: int) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.progress_storage = _NoProgress()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = watch_s
    settings.watching.chunk_size = PAGE
    settings.watching.label_selectors[PODS] = f"{ROLE_LABEL}={DRIVER_CONTAINER}"
    settings.watching.client_timeout = watch_s + 30
    settings.watching.connect_timeout = 10
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = pauses
    # Kopf would kill the process so long after its end, although it may have been begun anew in it.
    settings.process.ultimate_exiting_timeout = None
    return settings


class _Logins:
    """Opens sessions with the API server, with the credentials of the process's pod or kubeconfig as they are at the time.

    Each session is another to Kopf, which does not take credentials again that were refused once. A server that cannot ask its
    own store refuses good ones too.
    """

    def __init__(self, errors: WatchErrors, pauses: Pauses, answers: type[aiohttp.ClientResponse]) -> None:
        self._errors = errors
        self._answers = answers
        self._pauses = pauses
        self._next = iter(pauses)
        self._last_at: float | None = None

    async def log_in(self, **context: Any) -> kopf.AiohttpSession:
        now = time.monotonic()
        if self._last_at is None or now - self._last_at > 2 * self._pauses.most_s:
            self._next = iter(self._pauses)
        else:
            await asyncio.sleep(next(self._next))
        self._last_at = time.monotonic()
        info = _credentials(**context)
        if info is None:
            raise kopf.TemporaryError("neither a pod's service account nor a kubeconfig was found", delay=next(self._next))
        connector = aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context())
        session = aiohttp.ClientSession(
            connector=connector,
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            trace_configs=[_tracing(self._errors)],
            response_class=self._answers,
        )
        return kopf.AiohttpSession(server=info.server, default_namespace=info.default_namespace, aiohttp_session=session)


def _credentials(**context: Any) -> kopf.ConnectionInfo | None:
    info = kopf.login_with_service_account(**context)
    if info is None:
        return kopf.login_with_kubeconfig(**context)
    # By address, as the Kubernetes client has it: Kopf's name for the server needs a DNS that answers.
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return dataclasses.replace(info, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def _tracing(errors: WatchErrors) -> aiohttp.TraceConfig:
    """Note what becomes of each request of Kopf, which itself tells nobody but its log."""
    tracing = aiohttp.TraceConfig()

    async def ended(_: Any, __: Any, request: aiohttp.TraceRequestEndParams) -> None:
        status = request.response.status
        errors.note(request.url.path, None if status < 400 else f"{status} {request.response.reason}")

    async def failed(_: Any, __: Any, request: aiohttp.TraceRequestExceptionParams) -> None:
        if isinstance(request.exception, Exception):
            errors.note(request.url.path, type(request.exception).__name__)

    tracing.on_request_end.append(ended)
    tracing.on_request_exception.append(failed)
    return tracing


class _NoDiffs(kopf.DiffBaseStorage):
    """Kopf takes each object apart to tell what has changed since it last handled it. Nobody here asks that."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is ever written onto an object."""


class _NoProgress(kopf.ProgressStorage):
    """Handlers of raw events have no progress to keep."""

    def fetch(self, *, key: object, body: kopf.Body) -> kopf.ProgressRecord | None:
        return None

    def store(self, *, key: object, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing is ever written onto an object."""

    def purge(self, *, key: object, body: kopf.Body, patch: kopf.Patch) -> None:
        """Nothing was written."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Nothing is ever written onto an object."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
