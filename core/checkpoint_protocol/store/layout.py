"""Where each record lies, relative to the checkpoint URI. The only place that makes or takes apart these names.

    names/<scope>/<name>.json                     which uid a name means; <scope>: <namespace>, or in a cluster
                                                  cluster=<cluster>/<namespace>, which no namespace is called
    names/<scope>/<name>/<k>.json                 which one it means since its meaning was changed for the k-th time
    control/<uid>/write.json                      who this is
    control/<uid>/deleted.json                    the write was deleted: nothing of it may be committed any more
    control/<uid>/code/<sha256>.zip               code that attempts were recorded with, by the digest of the archive
    control/<uid>/0-index/<e>.json                what all epochs up to e have taken; the last ones are kept. No epoch is 0, and
                                                  a sorted listing shows this folder before any epoch
    control/<uid>/index-parts/<token>.json        files or rows of an index that are too many for one object
    control/<uid>/index-parts/<sha256>.keys       keys that an index names, put together from small objects
    control/<uid>/<epoch>/deleted.json            the write was deleted in this epoch: no claim of it from here on is acted on
    control/<uid>/<epoch>/launch/<n>.json         what driver n is told
    control/<uid>/<epoch>/target/<n>.json         the table made for driver n's proposed output
    control/<uid>/<epoch>/inherited.json          of a stage: what is taken over from another write
    control/<uid>/<epoch>/closed/<n>.json         the seals of attempt n that count
    control/<uid>/<epoch>/commit/claim-<i>.json   who may try to commit
    control/<uid>/<epoch>/commit/done.json        the commit record: the commit was seen in the table
    control/<uid>/<epoch>/cleaned.json            what was staged is removed, but for what later epochs need
    staged/<uid>/<epoch>/input.json               the epoch's input
    staged/<uid>/<epoch>/input/<token>.json       files of an input that is too large for one object
    staged/<uid>/<epoch>/<n>/input.json           the epoch's input from attempt n on: the source was edited before any seal
    staged/<uid>/<epoch>/<n>/plan.json            driver n's plan
    staged/<uid>/<epoch>/<n>/plan/<token>.json    tasks of a plan that is too large for one object
    staged/<uid>/<epoch>/<n>/output.json          the schema that driver n's steps produce, where the table is to be made
    staged/<uid>/<epoch>/<n>/failure.json         why driver n ended
    staged/<uid>/<epoch>/<n>/seals/<task>/<k>.json
    staged/<uid>/<epoch>/<n>/quarantine/<token>.json   rows that failed, where they are too many for their seal
    staged/<uid>/<epoch>/<n>/seals/bundle-<i>     copies of many seals, for whoever reads them all
    staged/<uid>/<epoch>/<n>/keys/<task>-<token>.parquet   the keys that a seal names, where rows are known by keys
    staged/<uid>/<epoch>/<n>/progress.json        what driver n is at, for people: overwritten, no record
    staged/<uid>/<epoch>/<n>/progress/<task>.json      the same of a running task
    staged/<uid>/<epoch>/<n>/memos/<task>/<k>-<token>.json   results of calls on rows that are not sealed yet: no record
    staged/<uid>/<epoch>/merge-keys.json          the keys of the rows that an upsert has staged
    staged/<uid>/<epoch>/merge-keys/<token>.parquet    some of them
    control/<uid>/<epoch>/stages/<stage>/...      a stage of the epoch, with records of its own as above; its done.json says that
    staged/<uid>/<epoch>/stages/<stage>/...       its results are final
    staged/<uid>/<epoch>/stages/<stage>/rows/<n>-<task>-<token>.arrow   rows that a stage of a pipeline gives the next one

Numbers are written without leading zeros; listings are sorted as numbers by whoever needs an order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from checkpoint_protocol.identity import EpochKey, is_stage

_NUMBERED = re.compile(r"(0|[1-9][0-9]{0,9})\.json")
_CLAIM = re.compile(r"claim-(0|[1-9][0-9]{0,9})\.json")
_SEAL = re.compile(r"(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,9})\.json")
_BUNDLE = re.compile(r"bundle-(0|[1-9][0-9]{0,9})")
_EPOCH = re.compile(r"([1-9][0-9]{0,9})/.+")
_TOKEN = re.compile(r"[0-9a-f]{32}\.json")
_MEMO = re.compile(r"(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,9})-[0-9a-f]{32}\.json")
_KEYS = re.compile(r"(0|[1-9][0-9]{0,9})-[0-9a-f]{32}\.parquet")
_ROWS = re.compile(r"[1-9][0-9]{0,9}-(0|[1-9][0-9]{0,9})-[0-9a-f]{32}\.arrow")
_MERGE_KEYS = re.compile(r"[0-9a-f]{32}\.parquet")
_NAME = re.compile(r"names/((?:cluster=[^/=]+/)?[^/=]+)/([^/]+?)(?:/([1-9][0-9]{0,9}))?\.json")
_INDEX_PART = re.compile(r"[0-9a-f]{32}\.json|[0-9a-f]{64}\.keys")
_CODE = re.compile(r"[0-9a-f]{64}\.zip")
_SEAL_OF_EPOCH = re.compile(r"([1-9][0-9]{0,9})/(?:stages/([^/]+)/)?[1-9][0-9]{0,9}/seals/" + _SEAL.pattern)
_STAGE = re.compile(r"([^/]+)/.+")

_SIGNED = re.compile(r"(?:control|staged)/([^/]+)/(?:.+/)?(?:[^/]+\.json|bundle-[0-9]+)")
_ADVICE = re.compile(r"staged/[^/]+/[0-9]+/(?:stages/[^/]+/)?[0-9]+/progress(?:/[^/]+)?\.json")
_ANSWER = re.compile(r"(control/[^/]+/[0-9]+(?:/stages/[^/]+)?)/(?:target|closed)/([0-9]+\.json)")

CONTROL = "control"
STAGED = "staged"
NAMES = "names"
_CLUSTER = "cluster="


def signed_for(path: str) -> str | None:
    """Return whose key signs an object at this path: a write's, by its uid, or a name's in a cluster, which no driver has.

    None for what is no record.
    """
    match = _SIGNED.fullmatch(path)
    if match:
        return None if _ADVICE.fullmatch(path) else match[1]
    named = name_of(path)
    return f"{NAMES}/{named[0]}/{named[1]}" if named and named[0].startswith(_CLUSTER) else None


def is_control(path: str) -> bool:
    """Whether an object lies where only controllers put some."""
    return path.startswith(f"{CONTROL}/")


def launch_of_answer(path: str) -> str | None:
    """Return the path of the launch record of the driver that waits for a record; None where none does."""
    match = _ANSWER.fullmatch(path)
    return f"{match[1]}/launch/{match[2]}" if match else None


def scope_in_cluster(cluster: str, namespace: str) -> str:
    """Return where the names of a cluster's namespace lie: beside those of other clusters, and of one machine."""
    return f"{_CLUSTER}{cluster}/{namespace}"


def name_path(scope: str, name: str, times_changed: int = 0) -> str:
    return f"{NAMES}/{scope}/{name}{f'/{times_changed}' if times_changed else ''}.json"


def names_folder(scope: str, name: str) -> str:
    """Where the meanings of a name lie, but for its first."""
    return f"{NAMES}/{scope}/{name}/"


def name_of(path: str) -> tuple[str, str, int] | None:
    """Return scope, name, and how often its meaning had been changed, of the record of a name; None for any other object."""
    match = _NAME.fullmatch(path)
    return (match[1], match[2], int(match[3] or 0)) if match else None


def write_path(uid: str) -> str:
    return f"{CONTROL}/{uid}/write.json"


def deleted_path(uid: str) -> str:
    return f"{CONTROL}/{uid}/deleted.json"


def code_folder(uid: str) -> str:
    return f"{CONTROL}/{uid}/code/"


def code_path(uid: str, digest: str) -> str:
    return f"{code_folder(uid)}{digest}.zip"


def is_code(path: str, uid: str) -> bool:
    """Whether an object is an archive of a write's code."""
    return _CODE.fullmatch(_below(path, code_folder(uid))) is not None


def index_folder(uid: str) -> str:
    return f"{control_folder(uid)}0-index/"


def index_path(uid: str, epoch: int) -> str:
    return f"{index_folder(uid)}{epoch}.json"


def index_parts(uid: str) -> str:
    return f"{control_folder(uid)}index-parts/"


def index_part(uid: str, token: str) -> str:
    return f"{index_parts(uid)}{token}.json"


def index_keys(uid: str, digest: str) -> str:
    return f"{index_parts(uid)}{digest}.keys"


def is_of_index(path: str, uid: str) -> bool:
    """Whether an object is an index of a write, or belongs to one."""
    is_part = _INDEX_PART.fullmatch(_below(path, index_parts(uid))) is not None
    return is_part or number_of(path, index_folder(uid)) is not None


def control_folder(uid: str) -> str:
    return f"{CONTROL}/{uid}/"


def stream_folder(uid: str) -> str:
    """Return the folder of Spark's own checkpoint of a stream: no records of ours."""
    return f"streams/{uid}/"


def staged_folder(uid: str) -> str:
    return f"{STAGED}/{uid}/"


@dataclass(frozen=True, slots=True)
class EpochLayout:
    """Paths of one epoch of one write."""

    key: EpochKey

    @property
    def control(self) -> str:
        return f"{CONTROL}/{self.key}"

    @property
    def staged(self) -> str:
        return f"{STAGED}/{self.key}"

    @property
    def stages(self) -> str:
        """The folder with the control records of the epoch's stages."""
        return f"{self.control}/stages/"

    @property
    def rows(self) -> str:
        """The folder with the rows of a stage's result."""
        return f"{self.staged}/rows"

    @property
    def input(self) -> str:
        return self.input_since(1)

    def input_since(self, attempt: int) -> str:
        """Where the input lies that attempts read from this one on."""
        return f"{self.staged}/input.json" if attempt == 1 else f"{self.staged}/{attempt}/input.json"

    @property
    def input_parts(self) -> str:
        return f"{self.staged}/input/"

    def input_part(self, token: str) -> str:
        return f"{self.input_parts}{token}.json"

    @property
    def launches(self) -> str:
        return f"{self.control}/launch/"

    def launch(self, attempt: int) -> str:
        return f"{self.launches}{attempt}.json"

    def target(self, attempt: int) -> str:
        return f"{self.control}/target/{attempt}.json"

    @property
    def inherited(self) -> str:
        return f"{self.control}/inherited.json"

    @property
    def closings(self) -> str:
        return f"{self.control}/closed/"

    def closed(self, attempt: int) -> str:
        return f"{self.closings}{attempt}.json"

    @property
    def deleted(self) -> str:
        return f"{self.control}/deleted.json"

    @property
    def cleaned(self) -> str:
        return f"{self.control}/cleaned.json"

    @property
    def commit(self) -> str:
        return f"{self.control}/commit/"

    def claim(self, index: int) -> str:
        return f"{self.commit}claim-{index}.json"

    @property
    def commit_record(self) -> str:
        return f"{self.commit}done.json"

    @property
    def merge_keys(self) -> str:
        return f"{self.staged}/merge-keys.json"

    def merge_keys_part(self, token: str) -> str:
        return f"{self.staged}/merge-keys/{token}.parquet"

    def plan(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/plan.json"

    def plan_parts(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/plan/"

    def plan_part(self, attempt: int, token: str) -> str:
        return f"{self.plan_parts(attempt)}{token}.json"

    def output(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/output.json"

    def failure(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/failure.json"

    def seals(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/seals/"

    def bundle(self, attempt: int, number: int) -> str:
        """In the folder of the seals: one listing shows both."""
        return f"{self.seals(attempt)}bundle-{number}"

    def seal(self, attempt: int, task: int, link: int) -> str:
        return f"{self.seals(attempt)}{task}/{link}.json"

    def quarantines(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/quarantine/"

    def quarantine(self, attempt: int, token: str) -> str:
        return f"{self.quarantines(attempt)}{token}.json"

    def keys(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/keys/"

    def keys_object(self, attempt: int, task: int, token: str) -> str:
        return f"{self.keys(attempt)}{task}-{token}.parquet"

    def progress(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/progress.json"

    def works(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/progress/"

    def work(self, attempt: int, task: int) -> str:
        return f"{self.works(attempt)}{task}.json"

    def memos(self, attempt: int) -> str:
        return f"{self.staged}/{attempt}/memos/"

    def memos_of_task(self, attempt: int, task: int) -> str:
        return f"{self.memos(attempt)}{task}/"

    def memo(self, attempt: int, task: int, link: int, token: str) -> str:
        """`link`: of the segment that the task worked on."""
        return f"{self.memos_of_task(attempt, task)}{link}-{token}.json"


def is_keys_object(path: str, folder: str) -> bool:
    """Whether an object is `<keys folder><task>-<token>.parquet`."""
    return _KEYS.fullmatch(_below(path, folder)) is not None


def is_rows_object(path: str, folder: str) -> bool:
    """Whether an object is `<rows folder>/<attempt>-<task>-<token>.arrow`."""
    return is_rows_name(_below(path, f"{folder}/"))


def is_rows_name(name: str) -> bool:
    """Whether a file is called as those that hold the result of a stage."""
    return _ROWS.fullmatch(name) is not None


def is_merge_keys(path: str, at: EpochLayout) -> bool:
    """Whether an object is the record of an upsert's keys, or has some of them."""
    return path == at.merge_keys or _MERGE_KEYS.fullmatch(_below(path, f"{at.staged}/merge-keys/")) is not None


def _below(path: str, folder: str) -> str:
    return path[len(folder) :] if path.startswith(folder) else ""


def epoch_of(path: str, folder: str) -> int | None:
    """Return e of `<control folder><e>/...`, or None for any other object."""
    match = _EPOCH.fullmatch(_below(path, folder))
    return int(match[1]) if match else None


def number_of(path: str, folder: str) -> int | None:
    """Return n of `<folder><n>.json`, or None for any other object (a stray object is nobody's record)."""
    match = _NUMBERED.fullmatch(_below(path, folder))
    return int(match[1]) if match else None


def claim_index_of(path: str, folder: str) -> int | None:
    """Return i of `<folder>claim-<i>.json`, or None."""
    match = _CLAIM.fullmatch(_below(path, folder))
    return int(match[1]) if match else None


def seal_of(path: str, folder: str) -> tuple[int, int] | None:
    """Return (task, link) of `<folder><task>/<link>.json`, or None."""
    match = _SEAL.fullmatch(_below(path, folder))
    return (int(match[1]), int(match[2])) if match else None


def is_part(path: str, folder: str) -> bool:
    """Whether an object is `<folder><token>.json`, for the folder of an input's or a plan's parts."""
    return _TOKEN.fullmatch(_below(path, folder)) is not None


def is_quarantine(path: str, folder: str) -> bool:
    """Whether an object is `<folder><token>.json`."""
    return _TOKEN.fullmatch(_below(path, folder)) is not None


def memo_of(path: str, folder: str) -> tuple[int, int] | None:
    """Return (task, link) of `<memos folder><task>/<link>-<token>.json`, or None."""
    match = _MEMO.fullmatch(_below(path, folder))
    return (int(match[1]), int(match[2])) if match else None


def bundle_of(path: str, folder: str) -> int | None:
    """Return i of `<folder>bundle-<i>`, or None."""
    match = _BUNDLE.fullmatch(_below(path, folder))
    return int(match[1]) if match else None


def key_of_seal(path: str, uid: str) -> EpochKey | None:
    """Return whose seal an object is, of an epoch or of a stage of one; None for any other object."""
    match = _SEAL_OF_EPOCH.fullmatch(_below(path, staged_folder(uid)))
    if match is None:
        return None
    if match[2] is not None and not is_stage(match[2]):
        return None
    return EpochKey(uid, int(match[1]), match[2] or "")


def stage_of(path: str, folder: str) -> str | None:
    """Return s of `<folder of stages><s>/...`, or None for any other object."""
    match = _STAGE.fullmatch(_below(path, folder))
    return match[1] if match and is_stage(match[1]) else None
