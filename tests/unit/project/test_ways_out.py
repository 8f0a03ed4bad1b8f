"""Each reason, and each message, that tells a way out has a test in which somebody goes that way, and the write, or the command,
goes on.

The messages are found in the source text (tests/support/messages.py), so that a new one without a test fails here.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Final

import pytest

from checkpoint_control.views.reason_texts import reason_texts
from checkpoint_protocol.manifest.spec import ManifestInvalid, parse_manifest
from tests.support import ways_out
from tests.support.corrected_manifests import CORRECTIONS
from tests.support.manifests import manifest
from tests.support.messages import messages_with_a_way_out, tells_a_way_out, texts_in
from tests.unit.formats.test_ways_out_of_sources import WAYS_OUT as WAYS_OUT_OF_SOURCES

TESTS: Final = Path(__file__).parents[2]
_WAYS: Final = "controller/test_ways_out.py"
_AGAIN: Final = "controller/test_trying_again.py"
_SEEN: Final = "controller/test_what_people_see.py"
_LIFE: Final = "controller/test_the_life_of_a_write.py"

#: A test for each, by its file below tests/ and its name. Those that are told to do nothing have one in which that is enough.
FOLLOWED: Final[Mapping[str, str]] = {
    "ManifestInvalid": f"{_SEEN}::test_a_manifest_that_is_corrected_goes_on",
    "IdentityChanged": "controller/test_recreation.py::test_another_write_under_the_name_starts_over_where_its_author_says_so",
    "WriteUnknown": "unit/cli/test_cli_inspect.py::test_an_unknown_write_is_an_error_that_lists_the_known_names",
    "NameAmbiguous": "unit/cli/test_cli_inspect.py::test_a_name_of_two_namespaces_is_refused_until_the_namespace_is_said",
    "WriteAtWork": "unit/cli/test_cli_forget.py::test_a_run_at_work_on_this_machine_is_named_and_not_forgotten",
    "AccessNotGranted": "controller/test_grants.py::test_what_is_granted_later_is_used_within_minutes",
    "StoreUnavailable": (
        "controller/test_errors_are_told.py::"
        "test_a_store_that_is_down_while_a_driver_runs_stands_in_a_condition_and_once_in_an_event"
    ),
    "CredentialsRefused": f"{_AGAIN}::test_refused_credentials_are_named_and_tried_again_when_they_were_mended",
    "StoreUnsafe": f"{_WAYS}::test_another_store_is_taken_where_the_first_ignores_put_if_absent",
    "FolderNotListed": (
        "contract/test_object_store.py::test_in_a_bucket_a_name_that_is_no_path_hides_its_own_folder_only_and_is_named"
    ),
    "RecordUnreadable": f"{_WAYS}::test_a_record_that_cannot_be_read_is_restored_from_a_backup",
    "RecordForged": (
        "controller/test_record_macs.py::test_an_input_without_files_that_a_stranger_puts_first_commits_nothing_and_is_named"
    ),
    "DiskFull": f"{_WAYS}::test_room_that_is_made_on_a_full_disk_is_used_by_the_next_attempt",
    "RecordTooLarge": (
        "unit/formats/test_planning.py::test_an_input_of_more_tasks_than_an_attempt_may_have_is_refused_with_the_way_out"
    ),
    "SourceMissing": f"{_AGAIN}::test_the_retry_annotation_that_the_message_names_looks_for_the_files_at_once",
    "SourceChanged": f"{_AGAIN}::test_a_file_that_was_replaced_and_is_put_back_goes_on_without_an_edit",
    "SourceMoved": f"{_WAYS}::test_a_moved_file_is_moved_back_or_it_is_said_what_it_is",
    "SourceLost": (
        "end_to_end/test_kafka.py::"
        "test_offsets_that_retention_has_overtaken_between_two_epochs_stop_the_write_until_they_are_passed_over"
    ),
    "StreamRefused": "end_to_end/test_streams.py::test_what_cannot_be_replayed_or_is_the_writes_own_is_refused_by_name",
    "StreamEnded": "end_to_end/test_streams.py::test_each_micro_batch_is_one_commit_and_the_end_of_the_query_is_none",
    "CheckpointLost": (
        "unit/spark/test_stream_checkpoint.py::test_a_folder_that_is_not_the_one_of_the_table_is_lost_until_it_is_put_back"
    ),
    "SourceUnavailable": (
        "contract/test_kafka_reader.py::test_a_broker_that_is_killed_and_comes_back_in_the_middle_of_a_read_costs_no_record"
    ),
    "SourceUnreadable": "end_to_end/test_bad_lines.py::test_a_bad_line_after_much_was_sealed_is_set_apart_as_the_message_advises",
    "KeysUnsuitable": "end_to_end/test_keys.py::test_a_null_key_is_refused_with_its_row",
    "KeysNotUnique": "end_to_end/test_keys.py::test_a_key_that_comes_twice_in_a_task_is_refused_with_an_example",
    "PlanNotMapOnly": "end_to_end/test_keys.py::test_what_combines_rows_is_computed_first_and_read_from_there",
    "CodeFailed": f"{_SEEN}::test_code_from_a_config_map_that_raises_stalls_and_goes_on_when_it_is_mended",
    "CodeChanged": f"{_AGAIN}::test_changed_code_waits_for_the_annotation_that_the_message_names_and_for_no_other",
    "CodeMissing": f"{_SEEN}::test_a_missing_config_map_stalls_with_its_name_and_goes_on_once_it_is_there",
    "ServiceUnavailable": f"{_WAYS}::test_a_service_that_answers_again_is_called_by_the_next_attempt_and_nothing_has_counted",
    "TooManyRowErrors": f"{_SEEN}::test_too_many_failed_rows_stall_with_the_way_out_and_a_raised_limit_goes_on",
    "OutputSchemaWrong": f"{_WAYS}::test_a_table_that_is_changed_as_the_message_says_takes_the_output",
    "OutputOutsideWhere": f"{_WAYS}::test_rows_outside_of_the_condition_are_left_out_as_the_message_says",
    "OutputKeyNull": f"{_WAYS}::test_rows_without_a_key_are_left_out_as_the_message_says",
    "OutputKeyRepeated": (f"{_WAYS}::test_of_rows_with_one_key_the_last_is_taken_once_the_manifest_says_by_which_column"),
    "CatalogUnavailable": (
        "controller/test_errors_are_told.py::test_a_catalog_that_is_down_at_the_commit_stands_in_a_condition_and_once_in_an_event"
    ),
    "FormerWriteFound": (
        "controller/test_recreation.py::"
        "test_the_same_name_under_another_checkpoint_uri_is_refused_until_its_author_asks_for_all_rows_once_more"
    ),
    "TableMissing": f"{_AGAIN}::test_a_missing_table_is_made_when_create_is_set_as_the_message_says",
    "TableReplaced": f"{_WAYS}::test_the_former_table_is_restored_after_another_took_its_name",
    "TableUnsupported": f"{_WAYS}::test_a_property_that_cannot_be_followed_is_corrected",
    "TableWrittenMeanwhile": (
        "end_to_end/test_overwrites.py::test_rows_that_a_stranger_adds_between_two_attempts_are_not_replaced_unasked"
    ),
    "AuditRefused": (
        "end_to_end/test_audits.py::test_once_the_code_is_edited_the_same_rows_are_audited_again_and_not_computed_again"
    ),
    "AuditBranchTaken": ("contract/test_audits_iceberg.py::test_a_branch_of_that_name_with_commits_of_others_is_left_and_named"),
    "TagExists": f"{_WAYS}::test_another_tag_is_named_or_the_one_that_is_there_dropped",
    "SchemaChanged": f"{_WAYS}::test_a_change_of_the_table_is_undone_and_what_is_staged_is_committed",
    "StagedFileMissing": f"{_WAYS}::test_a_staged_file_that_was_taken_away_is_restored",
    "WriteDeleted": (
        "controller/test_recreation.py::test_a_write_that_has_committed_nothing_leaves_nothing_behind_and_its_name_is_free"
    ),
    "CommitQueued": "controller/test_what_comes_between.py::test_a_commit_that_waits_for_its_turn_says_so_once",
    "ApiUnavailable": f"{_SEEN}::test_an_api_server_that_does_not_answer_is_waited_for",
    "ApiForbidden": (
        "contract/kubernetes/test_operator_that_hears.py::test_rights_that_are_taken_and_given_back_leave_no_write_unseen"
    ),
    "OperatorDefect": "controller/test_what_comes_between.py::test_what_the_operator_did_not_foresee_is_said_and_tried_again",
    "DriverFailed": f"{_LIFE}::test_a_killed_driver_is_followed_by_one_that_does_the_rest_only",
    "DriverOutOfMemory": f"{_WAYS}::test_a_driver_that_was_killed_for_memory_goes_on_with_more",
    "DriverEvicted": "controller/test_disruptions.py::test_four_disrupted_drivers_do_not_stall_a_write_and_are_named",
    "DriverPreempted": "controller/test_disruptions.py::test_four_disrupted_drivers_do_not_stall_a_write_and_are_named",
    "DriverDeleted": "controller/test_disruptions.py::test_four_deleted_drivers_do_not_stall_a_write_and_are_named",
    "NodeLost": "controller/test_disruptions.py::test_four_disrupted_drivers_do_not_stall_a_write_and_are_named",
    "DriverReplaced": f"{_SEEN}::test_a_corrected_image_replaces_the_pod_at_once_and_costs_no_retry",
    "ImageUnavailable": f"{_WAYS}::test_a_driver_that_cannot_start_is_replaced_by_one_of_the_corrected_manifest",
    "PodUnschedulable": f"{_WAYS}::test_a_driver_that_cannot_start_is_replaced_by_one_of_the_corrected_manifest",
    "PodIncomplete": f"{_WAYS}::test_a_driver_that_cannot_start_is_replaced_by_one_of_the_corrected_manifest",
    "PodRefused": f"{_SEEN}::test_a_pod_that_the_cluster_refuses_is_told_and_asked_for_again",
    "ExecutorsPending": ("controller/test_room.py::test_time_without_executors_is_no_failure_and_room_that_is_made_is_used"),
    "ExecutorsRefused": "controller/test_room.py::test_executors_that_a_quota_refuses_are_told_with_its_words",
    "DriverQueued": "controller/test_room.py::test_more_writes_than_may_have_drivers_wait_for_their_turn_and_say_so",
    "NoProgress": f"{_WAYS}::test_a_raised_deadline_lets_a_slow_driver_be",
    "WriteSuspended": f"{_LIFE}::test_a_suspended_write_ends_its_driver_and_goes_on_when_resumed",
    "DeadlineExceeded": f"{_LIFE}::test_past_its_active_deadline_a_write_stalls_and_goes_on_when_it_is_unset",
    "BackoffLimitExceeded": f"{_AGAIN}::test_the_retry_annotation_asks_for_new_tries_after_the_backoff_was_exhausted",
    "JavaUnsuitable": "unit/cli/validate/test_report.py::test_without_java_the_problem_names_java",
    "SourceEdited": (
        "end_to_end/test_bad_lines.py::test_an_edit_closes_an_open_attempt_without_seals_and_its_driver_counts_for_nothing"
    ),
    "OrderChanged": "unit/spark/test_keyed_tasks.py::test_a_second_try_that_meets_another_order_gives_up_and_seals_nothing",
    "CommitOutcomeUnknown": (
        "contract/test_branches_iceberg.py::"
        "test_a_branch_that_was_dropped_after_a_commit_to_it_was_tried_is_not_made_again_and_is_named"
    ),
    "CommitContended": "contract/test_upserts_iceberg.py::test_a_table_that_moves_after_each_merge_stops_the_write_and_is_named",
    "ApiConflict": "unit/cluster/test_record_keys.py::test_a_secret_that_is_changed_all_the_time_is_told",
}
#: Those after which nothing goes on by what somebody does, each with why.
NOT_FOLLOWED: Final[Mapping[str, str]] = {
    "StagedResultRefused": "a driver has lied, and nothing of it is ever committed: somebody finds out who that was",
    "FailureUnknown": "a reason of a later release, whose section that release has",
}


def test_each_reason_has_a_test_that_follows_its_way_out() -> None:
    described = {text.reason for text in reason_texts()}

    assert described - FOLLOWED.keys() - NOT_FOLLOWED.keys() == set(), (
        "name a test that goes the way out, or say why there is none"
    )
    assert (FOLLOWED.keys() | NOT_FOLLOWED.keys()) - described == set()
    assert FOLLOWED.keys() & NOT_FOLLOWED.keys() == set()


def test_the_tests_that_follow_a_way_out_exist() -> None:
    named = [test.partition("::") for test in {*FOLLOWED.values(), *ways_out.FOLLOWED}]

    assert [f"{path}::{name}" for path, _, name in named if name not in functions_in(path)] == []


@functools.cache
def functions_in(path: str) -> Set[str]:
    body = ast.parse((TESTS / path).read_text(encoding="utf-8")).body
    return {each.name for each in body if isinstance(each, ast.FunctionDef)}


# --- messages -------------------------------------------------------------------------------------------------------------

#: Pieces of messages, each with where it stands. Those of a table of cases are done by the test of these.
PIECES: Final[Sequence[str]] = (
    *(piece for pieces in ways_out.FOLLOWED.values() for piece in pieces),
    *WAYS_OUT_OF_SOURCES,
    *ways_out.NO_ADVICE,
    *ways_out.TO_LOOK_AT,
    *ways_out.FOLLOWED_BY_NOBODY,
)


@functools.cache
def messages() -> Mapping[str, str]:
    """Each message once, with a module that says it."""
    return {message.text: message.module for message in messages_with_a_way_out()}


def said_of_manifests() -> Iterator[str]:
    """What the models and the CRD say of the manifests that tests correct."""
    for correction in CORRECTIONS:
        with pytest.raises(ManifestInvalid) as caught:
            parse_manifest(manifest(**correction.refused))
        yield from caught.value.problems
        if correction.cluster_says:
            yield correction.cluster_says


def messages_of(piece: str) -> Set[str]:
    """The messages that a piece stands for; where it is all of one, it stands for no longer one."""
    return {piece} if piece in messages() else {text for text in messages() if piece in text}


def test_each_message_that_tells_a_way_out_has_a_test_that_follows_it() -> None:
    followed = set().union(*map(messages_of, PIECES))
    said = tuple(said_of_manifests())
    for text in messages().keys() - followed:
        pattern = re.compile(".+?".join(map(re.escape, text.split("{}"))), re.DOTALL)
        if any(pattern.search(each) for each in said):
            followed.add(text)
    left = sorted(f"{messages()[text]}: {text}" for text in messages().keys() - followed)

    assert left == [], "write a test that does what it says, and name it in tests/support/ways_out.py"


def test_each_piece_stands_for_one_message() -> None:
    wrong = {piece: len(found) for piece in PIECES if len(found := messages_of(piece)) != 1}

    assert wrong == {}, "the message has changed, or the piece is too short; or two tests say that they follow it"


def test_a_message_that_tells_a_way_out_is_found_wherever_it_stands() -> None:
    source = """
def refuse(name: str) -> None:
    '''Say so; leave it out.'''
    raise ValueError(f"{name} is here" + "; leave it out, or " f"raise {name}")


NAME = Field(description="Set it to 3.")
HINT = {"a": "use WHERE"}
"""
    assert [text for text in texts_in(ast.parse(source)) if tells_a_way_out(text)] == [
        "; leave it out, or raise {}",
        "use WHERE",
    ]
