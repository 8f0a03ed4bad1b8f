"""Which test does what a message says: by the test, pieces of the messages as they stand in the source text.

What is filled into a message is {} here, too. A piece stands for every message that has it, so that it should be long enough
to be of one; two modules may say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What looks as if something was to be done, and is not.
NO_ADVICE: Final = (
    "partition {} of micro-batch {}",
    "quote and escape: {}; one ASCII character is expected",
    "spec.reset asks for it",
    "show rows: {}",
    "({} so far, see status.rowsQuarantined)",
    "one for each task, segment and partition value",
    "topic, partition and offset",
    "all fragments, and say which rows go",
    "the data files that may have such rows, and put deletes of rows",
    "cast(id as string) as text",
    "tried {} times (retry)",
    "partition {} of the source",
    "with another quarantine.retry; the next attempt goes by that",
    "the plan names file {} of an input of {}",
    "lower case letters, digits and '-', with a letter or digit at both ends",
    "the name of an object (lower case letters, digits, '-' and '.', with a letter or digit at both ends)",
    "(by somebody, or by the kernel for want of memory: see driver.memory)",
    "the program {} returned without having called",
    "do everything again, {}",
)

#: They ask somebody to look, and nothing goes on by that alone: whether rows are there, or who has written what is not ours.
TO_LOOK_AT: Final = (
    "and the key is not in the {}; check whether the rows are there",
    "and neither the key nor a staged file is in the {}; check whether the rows are there",
    "sealed keys must not be touched; find out who may write there",
    "{} {}; find out who may write there",
    "find out who may write there, and remove the object if it is not this write's",
)
#: No test does yet what these say. Takes no new ones.
FOLLOWED_BY_NOBODY: Final = (
    "check its name",
    "set source.files.csv.quote: '' if quotes are part of the text, or rewrite the file",
    "keep the table's snapshots until its writes have committed",
    "rewrite its data files (rewrite_data_files of Spark or Flink applies them), and read a snapshot after that",
    "source: the table {} has the {} file {}, and Parquet files are read; rewrite its data files as Parquet",
    "start a new write, and keep snapshots until the next run",
    "keep the table's snapshots until its writes have committed (expire_snapshots removes files of old ones)",
    "repair the table, or read another snapshot of it",
    "file {} of snapshot {} of the table {} has {} bytes, and the table says {}; restore it, or start a new write",
    "which has other offsets; correct source.kafka.bootstrapServers, or start a new write",
    "an unclean election of a leader has lost records; start a new write then",
    "set quarantine.retry: Never, or source.kafka.onLost: Skip to pass them over",
    "keep versions",
    "the Lance dataset {} cannot be opened: {}; check {}",
    "keep versions while a write runs, and start a new write under another name",
    "keep versions for as long as a write takes, and run the write again",
    "keep the dataset's versions until its writes have committed (cleanup_old_versions removes old ones)",
    "file of the catalog {} cannot be opened or made: check that its folder is there and can be written, and {}",
    "check the permissions of the file and its folder, in which SQLite makes files of its own, and {}",
    "the catalog {} refused access: {}; check its credentials: {}",
    "the table {} has a column{} that pyiceberg cannot read: {}; drop the column, or its default",
    "it cannot be kept in {}: {}; check its permissions",
    "error: --watch goes by spec.trigger, and there is none; say every or cron there",
    "the cluster does not know CheckpointedWrites: apply the files of crds/ (helm install does so)",
    "spec.code: the archive cannot be used: {}; make it anew",
    "or move the branch of the write to it to have the rows committed",
    "let other writers commit less often, or mend what the message says",
    "restore the version before, then start a new write under another name",
    "which seals do not name; write to a dataset with data_storage_version 2.0 or 2.1",
    "exactly once cannot be kept with it; install the version of pylance that constraints.txt names",
    "columns cannot be added to rows exactly once with it; install the version of pylance that constraints.txt names",
    "was cleaned up before it could get the tag {}; leave sink.lance.tag out, and keep versions for longer",
    "Lance dataset {} changed while the write was running: {}; undo that, or start a new write under another name",
    "mend the code (of lines that cannot be read: source.files.types, source.files.csv)",
    "{} say that its snapshot {} comes after itself; set the table back to metadata that its catalog has written",
    "without it rows could be taken twice: start a new write for what is new",
    "give the operator more memory (recordMemory and resources.limits.memory in the chart's values)",
    "give the source fewer columns (source.columns)",
    "it was written by another release; use that one, or a later one",
    "let the steps give fewer columns",
    "rows that are tried again (set quarantine.retry: Never) or too many row groups (rewrite it with larger ones)",
    "{} cannot be read or written: {}; check the disk that it lies on",
    "the steps do not give the column {} of sink.columns (they give {}); correct the steps, or sink.columns",
    "there is no Spark here: install pyspark, or set SPARK_HOME",
    "the archive of the steps' code cannot be used: {}; make it anew",
    "what was sealed would be committed without a source: put them back, or start a new write",
    "job.write was called a second time: a write has one result; use union",
    "the key columns were {} when the write began, and are {} now; undo the change, or start a new write",
    "the source has a column {}: such names are ours; rename it",
    "; or a batch function gives what it makes of one row apart: let it give that one after the other",
    "there is no {} ({}); put its module where spec.code says, or install its package",
    "set quarantine.retry: Never",
    "it was written by another release: use that one, or start a new write",
    "keep versions while a write runs",
    "mend the code",
    "mend the source, or how it is read (source.files.types, source.files.csv)",
    "a result of {} bytes is too large; use large_binary, or give less at a time",
)

FOLLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "unit/protocol/test_storage_of_a_process.py::"
    "test_more_settings_than_a_process_takes_are_refused_and_those_that_a_write_needs_are_taken": (
        "leave out there what this write does not need (--settings names another file)",
    ),
    "controller/test_clusters_on_one_store.py::"
    "test_a_second_operator_on_a_namespace_is_told_which_one_works_there_and_goes_on_with_its_keys": (
        "if it is gone, give its keys to this one (recordKeys.existingSecret)",
    ),
    "contract/kubernetes/test_kube_api.py::"
    "test_a_pod_of_which_a_quota_wants_limits_is_admitted_once_the_template_gives_what_the_refusal_names": (
        "{}; give it in spec.{}.template: {spec: {containers: [{name: {}, resources: {{}}}]}}",
    ),
    "end_to_end/test_traces.py::test_a_row_that_a_data_file_does_not_have_is_told_with_how_many_it_has": (
        "{} has {}, counted from 0, and none at {}; correct --position",
    ),
    "unit/cli/test_code_digest.py::test_an_archive_with_a_broken_module_is_told_as_missing_code": (
        "spec.code: the archive cannot be used: {}; make it anew",
    ),
    "unit/cli/test_code_digest.py::test_a_file_of_the_code_that_cannot_be_read_is_told_as_missing_code": (
        "spec.code: {} cannot be read: {}; mend it, or take it out",
    ),
    "unit/cli/test_without_the_extra.py::test_the_command_names_what_to_install": (
        "run in a clone of the repository: pip install '.[local]'",
    ),
    "unit/commit/test_footers.py::test_a_footer_that_would_be_gigabytes_in_memory_is_not_made_into_objects": (
        "so that it cannot be checked; make sink.targetFileSize smaller",
    ),
    "unit/spark/test_row_isolation.py::test_why_the_first_rows_fail_is_in_the_answer_where_all_do": (
        "correct the step, or declare what it gives by its output, to have such rows quarantined",
    ),
    "end_to_end/test_what_has_changed_since.py::test_again_takes_a_new_file_with_a_driver_of_its_own": (
        "run --again begins the next one",
    ),
    "end_to_end/test_what_has_changed_since.py::test_an_edited_field_counts_for_new_input": (
        "rows that are committed stay as they are; an edit counts for new input, or for a write with another metadata.name",
    ),
    "unit/protocol/test_uris.py::test_a_folder_of_others_is_not_reached_through_ones_own": (
        ". and .. are no folders of a bucket, and lead elsewhere; write the path without them",
    ),
    "unit/protocol/test_uris.py::test_what_lance_would_read_as_another_name_it_is_not_given": (
        "{} stands in it, which is not taken for part of a name; use a name without it",
    ),
    "unit/commit/test_tables_that_lead_elsewhere.py::test_a_table_whose_history_has_no_beginning_is_refused": (
        "comes after itself; set the table back to metadata that its catalog has written",
    ),
    "unit/commit/test_tables_that_lead_elsewhere.py::test_manifests_that_stand_for_more_than_there_is_memory_for_are_refused": (
        "that are read of a manifest or a list of manifests; rewrite the manifests of the table",
    ),
    "unit/commit/test_tables_that_lead_elsewhere.py::test_metadata_that_would_take_more_memory_than_there_is_are_refused": (
        "for the metadata of tables; expire snapshots, or raise recordMemory and resources.limits.memory",
    ),
    "end_to_end/test_approvals.py::test_stages_that_are_done_wait_before_they_are_done_anew_and_the_message_names_them": (
        "stages with sealed rows would be computed again: {}{}; approve that, or undo the edit",
    ),
    "end_to_end/test_approvals.py::test_a_failed_stage_whose_code_was_edited_waits_and_goes_on_with_the_rows_that_are_left": (
        "or Restart (all rows are computed again), or undo the edit",
    ),
    "end_to_end/test_stage_preview.py::test_what_the_messages_say_shows_rows": (
        "--stage {}: spec.stages has no stage of that name; name one of these: {}",
        "the stage before, {}, has sealed nothing yet; run the write until it has",
    ),
    "end_to_end/test_stage_preview.py::test_an_aggregate_whose_groups_are_not_all_there_is_refused_until_they_are": (
        "which puts them together, is not done yet; run the write until it is",
    ),
    # --- streams ----------------------------------------------------------------------------------------------------------
    "unit/protocol/test_stream_source.py::test_what_does_not_go_with_a_stream_is_refused_and_taken_when_it_is_corrected": (
        "or say updateAs: Append, so that the table has each version of a row",
        "epochs of a stream are not audited yet",
        "it is for outputMode: Update; leave it out",
        "results are kept under the name of their row",
        "rows of a stream have no name by which they could be taken again",
        "the micro-batches of a stream are staged in one go",
        "where a stream keeps its place is below checkpoint.uri, or in checkpointVolume",
        "does not go with source.program.stream.{}, which needs {}",
    ),
    "unit/spark/test_stream_checkpoint.py::test_a_folder_that_is_not_the_one_of_the_table_is_lost_until_it_is_put_back": (
        "Put the folder back as it was when the write ran last",
    ),
    "unit/spark/test_values_as_steps_write_them.py::"
    "test_an_integer_beside_floats_that_a_float32_does_not_hold_is_refused_and_a_float_is_rounded": (
        "{}{} is an integer that a float32 does not hold; give a float if it may be rounded",
    ),
    "unit/spark/test_values_as_steps_write_them.py::"
    "test_what_is_no_value_of_a_column_is_refused_with_what_to_give_which_then_is_committed": (
        "{}pandas.{} is no value; give None where there is none",
        "{}{} is no decimal number; give None where there is none",
        "{}a time of day with a zone ({}), for which there is no type; give it without one",
    ),
    "unit/spark/test_values_as_steps_write_them.py::"
    "test_an_integer_beyond_64_bits_is_refused_with_the_type_to_declare_which_then_holds_it": (
        "{}{} is beyond 64 bits, which only a decimal column holds: declare decimal(38, 0)",
    ),
    "unit/spark/test_stream_volume.py::test_a_volume_that_may_not_be_written_is_named_with_what_to_do_and_used_once_it_may": (
        "let the group of the pods (fsGroup) read and write it",
    ),
    "unit/cli/validate/test_what_is_told.py::test_what_is_corrected_as_was_told_is_told_no_more": (
        "one machine has no PersistentVolumeClaims; leave it out",
        "; where it means NULL, name it in source.files.csv.nullValues",
        "if {} is between the columns, set source.files.csv.delimiter: {}",
        "drop it in the step",
        "leave it out by source.columns, drop it in a step",
        "has the column {}, which {} does not have (it has {}); {}, or add it to the table",
        "let it be a string, if Spark is to read the table",
        "and its pod has no GPU; declare the output",
        "{} is a file and no folder; correct the URI",
        "{} has modules that the driver would import instead of those it needs: {}{}; rename them, or leave out",
    ),
    "end_to_end/test_streams.py::test_what_cannot_be_replayed_or_is_the_writes_own_is_refused_by_name": (
        "job.stream was called a second time",
        "and the source is a stream, whose rows have no keys",
        "continuous processing has no micro-batches",
        "that is no stream; give it a DataFrame of spark.readStream",
        "job.stream is told outputMode={}",
        "the query has the identity of the write, and its place is below checkpoint.uri",
        "of a file that is gone it gives no rows, and no error",
        "real-time mode shows rows before their micro-batch has ended",
        "rows go to the sink of the manifest; leave it out",
        "say availableNow=True",
        "say sink.partitionBy in the manifest",
        "what came by a socket cannot be read again",
    ),
    "end_to_end/test_streams.py::test_a_program_of_rows_by_key_that_streams_is_told_what_to_say": (
        "and the manifest has keyColumns: say source.program.stream in their place",
    ),
    # --- the source -------------------------------------------------------------------------------------------------------
    "end_to_end/test_bad_lines.py::test_a_bad_line_after_much_was_sealed_is_set_apart_as_the_message_advises": (
        "set onRowError: Quarantine to set such lines apart and go on, give the column a type",
        "; set onRowError: Quarantine to set such lines apart and go on, or name the field",
    ),
    "unit/formats/test_lines_that_cannot_be_read.py::test_rows_after_a_field_that_is_too_long_are_not_guessed": (
        "give the mended file to a write of another name, or, if the quote is part of the text",
    ),
    "unit/formats/test_groups.py::test_columns_that_are_no_keys_are_refused_with_the_way_out": (
        "correct keyBy, or have the stage before give the column",
        "booleans and times can be keys; have the stage before give one",
    ),
    "end_to_end/test_pipelines.py::test_each_row_goes_through_all_stages_once_and_into_one_commit": (
        "as far as seals are there: `checkpointed-write clean` removes those of earlier epochs; correct the path",
    ),
    "unit/formats/test_extension_types.py::test_a_column_of_an_unknown_extension_type_is_refused_by_name_unless_it_is_left_out": (
        "leave the column out by source.columns (as long as nothing is sealed), or store it as a plain type",
    ),
    "unit/formats/test_source_lines.py::test_line_that_is_too_long_names_file_and_byte": (
        "check that the file is text in lines, or break the line up",
    ),
    "unit/formats/test_source_lines.py::test_rows_that_only_a_carriage_return_separates_cannot_be_read_again_by_themselves": (
        "let lines end in \\n or \\r\\n, or set onRowError: Fail",
    ),
    "unit/formats/test_finding_files.py::test_a_path_as_of_a_shell_is_told_what_to_write_and_finds_the_files_then": (
        "add a path to paths for each name",
        "write ? for the character",
    ),
    "unit/protocol/test_shell_words.py::test_a_place_that_is_written_out_as_the_message_says_is_taken": (
        "write out the path of the home folder",
        "write out its value",
    ),
    "unit/formats/test_ways_out_of_sources.py::test_a_file_whose_name_is_not_utf8_is_read_once_it_has_another_one": (
        "its name is not UTF-8, so that it cannot be recorded; rename it",
    ),
    "unit/formats/test_source_binary.py::test_a_content_that_is_too_large_is_a_row_that_failed_and_its_size_can_be_asked_for": (
        "leave it out (source.where: size <= {}), or read its path only (source.columns)",
    ),
    "unit/formats/test_planning.py::test_an_input_of_more_tasks_than_an_attempt_may_have_is_refused_with_the_way_out": (
        "let splitSize of the source be larger, or give it fewer files",
    ),
    "controller/test_trying_again.py::test_a_file_that_was_replaced_and_is_put_back_goes_on_without_an_edit": (
        "was replaced or removed while rows of it are missing ({}); put the old file back, or start a new write",
    ),
    "unit/spark/test_fixing_the_input.py::"
    "test_a_known_file_with_another_etag_stops_the_next_epoch_unless_it_is_told_what_to_do": (
        "set onReplaced: Process to take it again as new rows, or onReplaced: Skip to pass it over",
    ),
    "controller/test_ways_out.py::test_a_moved_file_is_moved_back_or_it_is_said_what_it_is": (
        "it seems to have been moved; move it back, or set onReplaced: Skip to pass it over",
    ),
    "end_to_end/test_rows_that_fail_beside_rows_left_out.py::"
    "test_rows_of_a_fragment_that_got_a_column_stop_a_retry_that_says_the_way_out": (
        "they failed in it {}; {}, or set onReplaced: Process or Skip to pass them over",
    ),
    "end_to_end/test_rows_that_fail_beside_rows_left_out.py::"
    "test_a_retry_alone_that_needs_an_expired_snapshot_says_the_way_out": ("set quarantine.retry: Also, which reads the one",),
    "end_to_end/test_bad_lines.py::"
    "test_the_delimiter_of_rows_that_are_known_by_number_is_refused_by_name_and_setting_it_back_goes_on": (
        "rows of such a file are known by their number, which depends on it; set it back to {}",
    ),
    # --- Kafka ------------------------------------------------------------------------------------------------------------
    "unit/formats/test_schema_registry.py::test_a_registry_that_nobody_serves_is_unavailable": (
        "does not answer: {}; check its url in schema_registry of the cluster's entry",
    ),
    "unit/formats/test_schema_registry.py::"
    "test_credentials_go_to_the_registry_alone_and_refused_ones_are_said_with_the_way_out": (
        "put username and password in schema_registry of the cluster's entry right",
        "does not answer as a schema registry does: {}; correct url in schema_registry",
    ),
    "unit/formats/test_schema_registry.py::"
    "test_certificates_that_cannot_be_read_are_said_and_those_of_the_system_are_taken_without_them": (
        "correct ca_file in schema_registry of the cluster's entry",
    ),
    "unit/formats/test_schema_registry.py::test_a_cluster_without_a_registry_is_refused_until_one_is_declared": (
        "add schema_registry with its url to the entry of the cluster",
    ),
    "unit/formats/test_schema_registry.py::test_a_topic_without_a_schema_is_refused_until_one_is_registered": (
        "register their schema there, or say format: raw and decode the values in a step",
    ),
    "unit/formats/test_schema_registry.py::test_a_field_that_no_column_has_is_refused_until_others_are_chosen": (
        "choose other fields by source.columns, register a schema without it, or say format: raw",
    ),
    "unit/formats/test_schema_registry.py::test_topics_have_their_columns_together_each_value_as_it_is": (
        "in that of another topic; choose other fields by source.columns, or use one write for each topic",
    ),
    "unit/formats/test_schema_registry.py::test_another_registry_under_another_url_is_seen_until_the_former_one_is_back": (
        "is another schema registry than then; put the former url back in schema_registry",
    ),
    "unit/formats/test_json_schema.py::"
    "test_a_property_whose_values_may_have_several_types_is_refused_with_the_way_out_and_taken_as_it_is_named": (
        "name a type that holds all of them by source.kafka.types (string holds any value, as its JSON text)",
    ),
    "end_to_end/test_kafka_avro.py::"
    "test_a_bad_value_is_quarantined_by_its_offset_or_stops_the_write_and_later_read_by_a_newer_schema": (
        "and quarantine.retry: Also to read them by the newest schema of a later epoch",
    ),
    "end_to_end/test_kafka.py::test_validate_says_what_a_run_would_read_and_what_is_wrong_with_the_source": (
        "put the credentials of its entry right (kafka in the settings)",
        "does not answer ({}){}; check source.kafka.bootstrapServers",
        "has no topic {}; correct source.kafka.topics, or make the topic",
    ),
    "end_to_end/test_kafka.py::"
    "test_offsets_that_retention_has_overtaken_between_two_epochs_stop_the_write_until_they_are_passed_over": (
        "and set source.kafka.onLost: Skip (with onRowError: Quarantine) to go on without them",
    ),
    "end_to_end/test_kafka.py::test_a_value_that_is_no_json_object_is_set_apart_by_its_offset_or_stops_the_write": (
        "; set onRowError: Quarantine to set such records apart and go on",
    ),
    # --- conditions and settings ------------------------------------------------------------------------------------------
    "unit/protocol/test_ways_out.py::test_a_condition_that_is_written_as_the_message_says_is_taken": (
        "; write a number without quotes",
        "; write a text in single quotes",
        "; write a text in single quotes, as in ISO 8601",
        "; write true or false",
        "is a date, and {} is none; write it as",
        "is a time {}, and {} is none; write it as",
        "there is no column {} (there are {}); correct it{}",
    ),
    "unit/protocol/test_ways_out.py::test_a_variable_that_is_set_or_named_right_is_read_as_the_message_says": (
        "the environment variable {} is not set; set it where this runs",
    ),
    "unit/protocol/test_ways_out.py::test_a_secret_file_that_is_put_there_is_read_as_the_message_says": (
        "put it there, or correct its path: {}",
    ),
    "unit/cli/test_ways_out.py::test_a_write_whose_catalog_is_nowhere_is_told_the_file_to_make_and_its_lines": (
        "in a settings file (there is none: make checkpointed-write.settings.yaml beside the manifest, or name a file with",
    ),
    "unit/commit/test_lance_namespaces.py::test_a_source_that_is_missing_is_read_once_it_is_made_or_its_name_is_corrected": (
        "make it (sink.create makes that of a sink), or correct its name",
    ),
    "unit/commit/test_lance_namespaces.py::test_a_name_that_leads_elsewhere_is_told_until_it_leads_there_again": (
        "led to {} when the write began; let it lead there again, or start a new write under another name",
    ),
    "unit/commit/test_lance_namespaces.py::test_a_table_whose_versions_the_server_keeps_is_refused_and_another_one_is_used": (
        "which would not know of a commit; name a table of another namespace",
    ),
    "unit/commit/test_lance_namespaces.py::test_a_token_that_is_refused_is_told_and_another_one_is_taken": (
        "the Lance namespace {} refused access; check its credentials: {}",
    ),
    "unit/commit/test_lance_namespaces.py::test_a_server_that_does_not_answer_may_do_so_at_another_address": (
        "the Lance namespace {} does not answer for {}: {}; check {}",
    ),
    "unit/protocol/test_ways_out.py::test_settings_that_are_corrected_as_the_message_says_are_used": (
        "there is no {} {} (there are: {}); add it to {}",
        "no storage entry covers {}: add one to {}",
        "has neither keys nor credentials: give it {}",
        "keys do not go with it; leave one of them out",
        "sasl_mechanism, username and password go with SASL_PLAINTEXT and SASL_SSL",
        "ca_file, certificate_file and key_file go with SSL and SASL_SSL",
    ),
    "unit/protocol/test_ways_out.py::test_a_server_that_is_left_out_or_a_uri_of_a_bucket_is_used_as_the_message_says": (
        "credentials go to no other servers; leave it out, or add it there",
        "nothing on disk is opened here; use an object store",
    ),
    "unit/protocol/test_ways_out.py::test_a_name_without_what_is_no_part_of_one_is_opened": (
        "which is not taken for part of a name; use a name without it",
    ),
    "unit/protocol/test_ways_out.py::test_a_source_in_a_folder_of_its_own_is_read_as_the_message_says": (
        "let each have a folder of its own",
    ),
    "unit/cli/test_cli_allow.py::test_an_allowed_file_counts_until_it_is_changed": (
        "Read it, then run: checkpointed-write allow {} (again after each change)",
    ),
    # --- the store and the records ----------------------------------------------------------------------------------------
    "controller/test_ways_out.py::test_room_that_is_made_on_a_full_disk_is_used_by_the_next_attempt": (
        "there is no room to write {}; make room there (or raise the quota), or choose another place",
    ),
    "controller/test_ways_out.py::test_another_store_is_taken_where_the_first_ignores_put_if_absent": (
        "exactly once cannot be kept on it; use a store with conditional writes",
    ),
    "controller/test_trying_again.py::test_refused_credentials_are_named_and_tried_again_when_they_were_mended": (
        "the store refused access to {}: {}; check {}",
    ),
    "unit/formats/test_refused_tokens.py::test_a_store_that_never_says_why_takes_a_new_token": (
        "as for a token that has expired; check the credentials of this prefix",
    ),
    "unit/spark/test_spark_names.py::test_two_columns_of_one_name_are_refused_as_a_step_would_see_one": (
        "what Spark gives to the steps has two columns {}; name them apart",
    ),
    "unit/protocol/ledger/test_seals.py::test_more_objects_than_the_tasks_can_have_sealed_are_refused_and_not_collected": (
        "remove those that no driver of this write has put, and find out who may write there",
    ),
    "contract/test_object_store.py::test_in_a_bucket_a_name_that_is_no_path_hides_its_own_folder_only_and_is_named": (
        "with a name that is no path: {}; remove that object, and find out who may write there",
    ),
    "unit/protocol/test_settings.py::test_a_token_that_lance_would_send_with_other_keys_is_named_and_goes_once_it_is_unset": (
        "unset {} for this process, or use credentials: ambient instead of keys",
    ),
    "unit/protocol/test_settings.py::test_keys_that_a_library_would_complete_from_this_machine_are_refused": (
        "lacks {}: give it {}",
    ),
    "unit/protocol/test_problems.py::test_what_cannot_be_a_member_of_a_union_has_a_write_of_its_own": (
        "it cannot be a member of a union (files, iceberg and lance can); give it a write of its own into the table",
    ),
    "unit/protocol/test_handed_keys.py::test_a_prefix_of_which_no_catalog_hands_out_keys_is_refused_with_the_way_out": (
        "give other places, such as that of the checkpoint, an entry of their own with a longer prefix",
    ),
    "unit/protocol/test_settings.py::test_the_account_of_a_uri_is_nobody_elses": ("says account_name: {}; correct one of them",),
    "unit/protocol/test_uris.py::test_a_uri_of_an_old_client_of_azure_is_opened_as_the_message_says": (
        "no library here knows it any more; write abfss://container@account.dfs.core.windows.net/path",
    ),
    "contract/test_memory_of_datasets.py::test_a_dataset_is_opened_again_once_its_schema_says_less": (
        "compact the dataset (dataset.optimize.compact_files()), or remove metadata of its schema",
    ),
    "controller/test_recreation.py::"
    "test_the_same_name_under_another_checkpoint_uri_is_refused_until_its_author_asks_for_all_rows_once_more": (
        "another cluster has written them, set spec.onRecreate to New or take another metadata.name",
    ),
    "contract/test_object_store.py::test_a_server_that_dies_and_comes_back_is_retryable_and_then_has_everything": (
        "the store did not answer for {}: {}; check its endpoint",
    ),
    "unit/commit/test_rest_catalogs.py::test_a_server_that_sends_requests_on_to_another_one_is_not_followed": (
        "if it has moved, change {} in the settings",
    ),
    "unit/commit/test_rest_catalogs.py::test_a_server_whose_paths_lead_out_of_the_catalog_is_refused": (
        "that leads out of its own paths: {}; correct the server, or catalogs.{}.uri in the settings",
    ),
    "unit/local/test_links_are_not_followed.py::"
    "test_what_a_link_in_a_write_leads_to_stays_and_the_rest_goes_once_the_link_is_removed": (
        "or removed from, where others may write; remove it, or put a copy of what it stands for in its place",
    ),
    "unit/cluster/test_record_keys.py::test_a_secret_that_is_changed_all_the_time_is_told": (
        "is changed again and again by somebody else: leave it to the operator",
    ),
    "unit/cluster/test_record_keys.py::test_an_id_of_the_cluster_that_somebody_changed_is_named_and_not_replaced": (
        "is not as the operator made it; bring it back, or set clusterName",
    ),
    "unit/cluster/test_record_keys.py::test_an_entry_that_is_no_key_is_named_and_nothing_is_signed": (
        "is no key for records, which only the operator makes; remove the entry",
    ),
    # --- the code ---------------------------------------------------------------------------------------------------------
    "unit/protocol/test_ways_out.py::test_an_archive_that_is_made_as_the_message_says_is_unpacked": (
        "is a link or a device; put the file itself in",
        "is compressed in a way that is not known here; use deflate",
    ),
    "unit/cli/test_code_archive.py::test_a_module_with_a_name_that_cannot_be_imported_is_told": (
        "cannot be imported under that name; give it the name of a module",
    ),
    "unit/cli/test_code_archive.py::test_a_hostile_object_is_refused_with_a_way_out": (
        "; make it anew, e.g. with python -m zipfile -c code.zip package/",
    ),
    "unit/cli/test_code_archive.py::test_a_file_that_is_not_there_is_named": ("cannot be read: {}; correct the path",),
    "unit/cli/test_code_archive.py::test_other_bytes_under_its_name_are_corrupt": ("is not what its name says; remove it",),
    "unit/cluster/test_code_source.py::test_code_that_is_gone_is_told_though_it_was_there": (
        "there is no object {}; put it there, or correct the URI",
    ),
    "controller/test_what_people_see.py::test_a_missing_config_map_stalls_with_its_name_and_goes_on_once_it_is_there": (
        "there is no ConfigMap {}/{}; make it, e.g. kubectl create configmap",
    ),
    # --- the steps --------------------------------------------------------------------------------------------------------
    "unit/spark/test_steps.py::test_a_column_that_a_row_leaves_out_is_refused_with_step_row_column_and_ways_out_that_work": (
        "give None where there is no value, or declare its output",
    ),
    "controller/test_what_people_see.py::test_too_many_failed_rows_stall_with_the_way_out_and_a_raised_limit_goes_on": (
        "allow more (spec.onRowError, spec.quarantine)",
        "They stay so when the code is mended, until a later epoch takes them again (quarantine.retry)",
    ),
    # --- the table --------------------------------------------------------------------------------------------------------
    "controller/test_trying_again.py::test_a_missing_table_is_made_when_create_is_set_as_the_message_says": (
        "{} does not exist; make it, or set sink.create: true",
    ),
    "controller/test_replaced_tables.py::test_one_that_is_made_by_hand_then_as_the_message_says_gets_the_new_rows": (
        "or create the table yourself if it needs only the new rows",
    ),
    "controller/test_ways_out.py::test_the_former_table_is_restored_after_another_took_its_name": (
        "whose files belong to the old table: restore that one, or give the write a new name",
    ),
    "controller/test_ways_out.py::test_a_change_of_the_table_is_undone_and_what_is_staged_is_committed": (
        "the table {} changed while the write was running: {}; undo that",
    ),
    "controller/test_ways_out.py::test_a_property_that_cannot_be_followed_is_corrected": (
        "has a property that cannot be followed: {}; correct or remove it",
    ),
    "controller/test_ways_out.py::test_rows_without_a_key_are_left_out_as_the_message_says": (
        "and sink.upsertKeys are what rows are matched by; leave such rows out",
    ),
    "controller/test_ways_out.py::test_rows_outside_of_the_condition_are_left_out_as_the_message_says": (
        "for which sink.where is not true ({}): it would not take the place",
    ),
    "controller/test_ways_out.py::test_of_rows_with_one_key_the_last_is_taken_once_the_manifest_says_by_which_column": (
        "set sink.onDuplicate: Last with sink.orderBy",
    ),
    "controller/test_ways_out.py::test_another_tag_is_named_or_the_one_that_is_there_dropped": (
        "name another one in sink.iceberg.tag{}, or drop that one",
        "name another one in sink.lance.tag{}, or drop that one",
    ),
    "contract/test_upserts_iceberg.py::test_tables_that_want_it_otherwise_are_refused_with_the_way_out": (
        "which has no deletes of rows, and sink.mode: Upsert makes some: upgrade it to version 2",
    ),
    "end_to_end/test_upserts_lance.py::test_blobs_are_refused_before_any_work_where_rows_may_be_left_out": (
        "start a new write with Update or Delete, and leave rows of one key out in a step",
    ),
    "end_to_end/test_upserts_lance.py::test_a_column_that_a_staged_file_gives_in_another_type_is_refused_and_not_cast": (
        "as whenMatched: Ignore and onDuplicate: Last need it; start a new write without these",
    ),
    "contract/test_upserts_iceberg_copy_on_write.py::test_equality_deletes_of_what_was_written_anew_stop_the_write_by_name": (
        "rewrite its data files (rewrite_data_files of Spark or Flink applies the deletes), and have the commit tried again",
    ),
    "contract/test_upserts_iceberg.py::test_a_table_that_moves_after_each_merge_stops_the_write_and_is_named": (
        "stop for a while what appends to it or rewrites its files, and have the commit tried again",
    ),
    "contract/test_audits_iceberg.py::"
    "test_an_overwrite_after_a_move_of_the_table_that_brought_nothing_is_audited_again_on_the_new_head": (
        "look what has changed; then drop the branch {}",
    ),
    "contract/test_audits_iceberg.py::test_a_branch_of_that_name_with_commits_of_others_is_left_and_named": (
        "look at its rows, keep them under another branch name if you need them, and drop this branch",
    ),
    "contract/test_branches_iceberg.py::"
    "test_a_branch_that_was_dropped_after_a_commit_to_it_was_tried_is_not_made_again_and_is_named": (
        "which was dropped since (make it again from that snapshot, and the commit can be tried again)",
    ),
    "contract/test_branches_iceberg.py::"
    "test_a_tag_in_the_place_of_the_branch_is_refused_by_its_name_before_the_work_and_at_the_commit": (
        "and a tag cannot be written; name a branch in sink.iceberg.branch",
    ),
    "contract/test_overwrites_iceberg.py::"
    "test_a_file_with_rows_on_both_sides_of_the_condition_is_refused_before_the_work_and_at_the_commit": (
        "let sink.where be on columns by which the table is partitioned",
    ),
    "contract/test_overwrites_iceberg.py::test_partitions_of_a_table_with_files_of_another_spec_are_refused": (
        "(rewrite_data_files with rewrite-all), or use OverwriteWhere or OverwriteAll",
    ),
    "contract/test_overwrites_iceberg.py::"
    "test_rows_that_others_put_there_since_the_epoch_began_stop_it_unless_they_are_to_be_replaced": (
        "look whether they are to stay; then either take them out of the way, or set sink.onConcurrent: Replace",
    ),
    "contract/test_overwrites_lance.py::"
    "test_rows_that_others_put_there_since_the_epoch_began_stop_it_unless_they_are_to_be_replaced": (
        "check whether they are to stay; then either take them out of the way, or set sink.onConcurrent: Replace",
    ),
    "end_to_end/test_audits.py::test_once_the_code_is_edited_the_same_rows_are_audited_again_and_not_computed_again": (
        "Edit the code, and they are audited again; to have them audited again as it is, run again",
    ),
    # --- the cluster ------------------------------------------------------------------------------------------------------
    "controller/test_ways_out.py::test_a_driver_that_was_killed_for_memory_goes_on_with_more": (
        "raise spec.driver.memory, or spec.driver.memoryOverhead",
    ),
    "controller/test_ways_out.py::test_a_driver_that_cannot_start_is_replaced_by_one_of_the_corrected_manifest": (
        "correct spec.image, or give the node access to it",
        "make what is missing, or correct its name",
    ),
    "controller/test_the_life_of_a_write.py::test_past_its_active_deadline_a_write_stalls_and_goes_on_when_it_is_unset": (
        "what is sealed stays: raise it, or unset it, to go on",
    ),
    "contract/kubernetes/test_operator_that_hears.py::"
    "test_where_the_kind_vanishes_the_process_ends_and_the_next_one_sees_the_writes_of_the_new_kind": (
        "does not know CheckpointedWrites any more: apply the files of crds/ again",
    ),
    "contract/kubernetes/test_operator_that_hears.py::test_rights_that_are_taken_and_given_back_leave_no_write_unseen": (
        "the operator may not do this, see the chart's roles",
    ),
    # --- the command ------------------------------------------------------------------------------------------------------
    # --- Spark ------------------------------------------------------------------------------------------------------------
    "end_to_end/test_map_only.py::test_what_is_written_in_its_place_as_the_message_says_is_accepted": (
        "look values up in a step instead, or {}",
        "use LATERAL VIEW or explode() of the row's own columns",
        "leave it out: a table has no order; sort when reading",
        "use WHERE on the key columns",
        "use WHERE on a hash of the key columns, e.g. pmod(xxhash64(id), 100) < 5",
        "leave it out; set the number of tasks by source.spark.options or sparkConf",
        "leave it out; set the number of tasks by sparkConf",
        "use WHERE",
        "use explode() of an array of structs",
        "write the named query as a subquery: SELECT ... FROM (SELECT ... FROM input)",
        "use a batch function (mapInPandas), or a step",
        "use a batch function (mapInArrow), or a step",
        "select it unchanged: SELECT {}, ... FROM input",
        "read only what is declared as source: in sql from input, in a program through job.read",
        "use projections, filters, explode, union and batch functions (mapInArrow, mapInPandas), or a step",
        "write fixed values, or filter by a hash of the key columns",
        "what it gives may change between attempts; look values up in a step instead, or {}",
        "read it once, and use explode() of an array to make several rows of one",
        "as another type it would not be known again; declare it as {}",
    ),
    "end_to_end/test_map_only.py::test_a_key_that_a_window_function_has_made_is_refused_and_other_columns_of_it_are_not": (
        "take columns of the rows themselves as keys, or compute it before, in a table",
    ),
    "end_to_end/test_map_only.py::test_row_by_row_work_is_accepted": (
        "compute such columns after the source (in sql, after job.read, or in a step)",
    ),
    "unit/spark/test_gpus.py::test_a_container_that_lacks_gpus_is_refused": (
        "say gpus: 1, and tasksPerExecutor for tasks that share it",
    ),
    "unit/spark/test_gpus.py::test_a_process_that_has_begun_with_one_gpu_is_not_given_another": (
        "leave spark.python.worker.reuse out of sparkConf",
    ),
    "unit/spark/test_ways_out_of_steps.py::test_a_variable_that_the_environment_has_by_then_is_filled_in": (
        "spec.sparkConf: {} names the variable {}, which the driver's environment does not have; set it",
    ),
    "unit/spark/test_ways_out_of_steps.py::test_a_column_of_no_type_is_proposed_once_it_has_one_as_the_message_says": (
        "give it a type in the step, or create the table yourself",
    ),
    "unit/spark/test_ways_out_of_steps.py::test_a_module_that_is_put_where_the_message_says_is_found": (
        "put it where spec.code says (code.path, code.uri or code.configMap)",
    ),
    "unit/spark/test_ways_out_of_steps.py::test_a_step_that_is_corrected_as_the_message_says_gives_its_rows": (
        "drop it in the step, or add it to the table",
        "drop it in the step, or declare it",
        "which its output does not declare (it declares {}); drop it in the step, or declare it",
        "correct the step, or what it declares",
        "column {} needs values of type {}{}: {}; correct the step, or what it declares",
        "correct the step, or declare its output (output: {name: type})",
        "which the table does not have (it has {}); drop it in a step (or by source.columns, as long as nothing is sealed)",
        "the steps give {} in the column {}, and the table has {}; cast it in a step",
        "declare what it gives by its output (output: {name: type}), or create the table yourself",
        "; to leave a row out, give None instead of ending the process",
    ),
    "end_to_end/test_keys.py::test_what_combines_rows_is_computed_first_and_read_from_there": (
        "do it before the source (in a table that this write then reads)",
    ),
    "end_to_end/test_keys.py::test_a_key_that_comes_twice_in_a_task_is_refused_with_an_example": (
        "add columns to keyColumns that tell them apart (in a new write), or remove the duplicates",
    ),
    # --- more of the command ----------------------------------------------------------------------------------------------
    "unit/cli/validate/test_report.py::test_a_changed_identity_is_a_problem_of_the_section": (
        (
            "is not what the write {} began with in {}; it is fixed for the life of a write: undo the change, or give the new "
            "write another metadata.name"
        ),
    ),
    "controller/test_recreation.py::"
    "test_another_write_under_the_name_is_refused_with_the_way_out_and_its_deletion_touches_nothing": (
        "it is fixed for the life of a write: undo the change, or give the new write another metadata.name{}",
    ),
    "unit/cli/validate/test_report.py::test_without_java_the_problem_names_java": ("install Java 17 or 21 (Debian, Ubuntu",),
    "unit/cli/test_validate_tables.py::test_a_table_that_is_not_there_is_a_problem": (
        "has no table {}; correct source.iceberg, or make the table",
        "has no branch or tag {} (it has: {}); correct source.iceberg.branch",
        "has no snapshot {} (any more); correct source.iceberg.snapshotId",
    ),
    "unit/cli/test_async_steps.py::test_an_async_init_is_refused_by_validate_and_by_a_driver": (
        "is async, but is never awaited; move what waits to an async setup()",
    ),
    "unit/cli/test_cli_inspect.py::test_a_name_of_two_namespaces_is_refused_until_the_namespace_is_said": (
        "is a name in several namespaces or clusters of {}; say which",
    ),
    "unit/cli/test_cli_forget.py::test_a_run_at_work_on_this_machine_is_named_and_not_forgotten": ("end it first",),
    "unit/cli/test_cli_forget.py::test_an_open_attempt_of_another_machine_is_forgotten_only_by_force": (
        "end it there; if that machine is gone, say --force",
    ),
    "unit/cli/test_yaml_documents.py::test_paths_that_stand_twice_in_a_manifest_are_refused_with_both_lines": (
        "stands twice in one mapping, first in line {}; remove one",
    ),
    "unit/formats/test_source_parquet.py::test_files_in_the_folder_of_a_table_are_refused_and_its_source_is_named": (
        "read the table by {}, or copy the files to a folder of their own",
    ),
    "unit/commit/test_table_types.py::test_names_by_which_a_table_could_not_be_read_are_refused": (
        "pandas writes its index so): give it one in a step, or leave it out",
        "so that Spark cannot read the table: rename one of them in a step, or leave one out",
    ),
    "unit/commit/test_table_types.py::test_every_column_that_cannot_be_made_is_named_at_once": (
        "cast it in a step",
        "{}: {}, or leave it out",
    ),
    "unit/commit/test_table_types.py::test_a_column_of_thirty_two_levels_has_a_table": (
        "is nested more than {} deep: flatten it, or leave it out",
    ),
    "unit/commit/test_table_types.py::test_columns_that_are_finer_than_iceberg_are_told": (
        "a row with a finer time fails, and is not cut off; round it in a step",
    ),
    "unit/spark/test_pod_executor.py::"
    "test_java_is_given_spark_home_and_a_folder_for_its_tasks_and_its_exit_code_is_the_containers": (
        "this image has no java: install 17 or 21",
        "this image has no pyspark: install it, or set SPARK_HOME",
    ),
    "unit/cluster/test_pod_policy.py::test_what_reaches_beyond_the_pod_is_refused_by_its_field": (
        "leave it out, or ask the administrator of the operator to allow it: workloads.allowed in the chart's values",
    ),
    "unit/cluster/test_resync.py::test_a_write_that_had_no_room_is_served_once_another_is_deleted_as_the_message_says": (
        "of the operator's memory that a namespace may have; delete writes, or raise writesMemoryPerNamespace",
    ),
    "controller/test_large_manifests.py::test_long_arguments_are_put_into_a_file_of_the_code_as_the_message_says": (
        "put long arguments into a file of spec.code, and name that in the arguments",
    ),
    "unit/cluster/test_pod_drivers.py::test_a_pod_of_another_write_in_the_place_of_our_driver_is_for_a_person": (
        "is not one of this write, and stands where its driver would: remove it",
    ),
    "end_to_end/test_kills_with_spark.py::test_a_stopped_runner_is_named_and_passed_over_and_attaches_when_it_wakes": (
        "is stopped (Ctrl-Z, SIGSTOP); kill -CONT {} lets it go on",
    ),
    # --- what else was corrected ------------------------------------------------------------------------------------------
    "unit/cli/test_ways_out.py::test_a_trigger_on_a_bucket_or_none_is_taken_as_the_message_says": (
        "read a bucket, or leave the trigger out and set another runNonce for what is new",
    ),
    "unit/cli/test_ways_out.py::test_a_path_of_spark_that_is_corrected_is_no_problem": (
        "there is no such file or folder; correct the path",
    ),
    "unit/cli/test_ways_out.py::test_a_folder_of_a_catalog_that_was_made_is_found": (
        "catalogs.{}.uri: the folder {} does not exist; make it",
    ),
    "unit/cli/test_ways_out.py::test_modules_of_a_stage_that_are_named_or_delivered_as_the_message_says_have_a_digest": (
        "which is neither in what spec.code names nor in an installed package; correct the name",
        "say code.configMap or code.uri, or leave code of the stage out",
    ),
    "unit/cli/test_ways_out.py::test_a_dataset_that_is_there_and_may_lack_values_gets_columns_as_the_message_says": (
        "{} does not exist; correct its uri: columns are added to rows that are there",
        "{} is required in {}, and is NULL in rows without a value; make it nullable (alter_columns)",
        "to whose rows columns are to be added; correct its uri",
        "in which columns have no files of their own; write the dataset again with a later version",
        "make it nullable (alter_columns), or name another one in sink.columns",
    ),
    "controller/test_ways_out.py::test_a_write_in_the_operators_own_namespace_is_served_in_another": (
        "pods there could read the operator's Secrets; apply it in another namespace",
    ),
    "unit/spark/test_dataframe_choices.py::test_a_variable_that_is_not_set_is_named": (
        "source.spark.options.{} names the variable {}, which the driver's environment does not have; set it",
    ),
    "unit/spark/test_dataframe_choices.py::test_other_types_are_refused": (
        "cast it in the source, or name another column in keyColumns",
    ),
    "unit/spark/test_keyed_partitions.py::"
    "test_a_plan_of_spark_with_more_partitions_than_an_attempt_may_have_is_refused_with_the_way_out": (
        "read the source in fewer (spark.sql.files.maxPartitionBytes in sparkConf",
    ),
    "end_to_end/test_keys.py::test_a_null_key_is_refused_with_its_row": (
        "give it one, or leave such rows out (WHERE ... IS NOT NULL)",
    ),
    "end_to_end/test_keys.py::test_rows_that_sql_makes_several_of_cannot_be_set_apart_so_it_is_refused": (
        "do that in a step that gives several rows, or set onRowError: Fail",
    ),
    "unit/decision/test_cleaning.py::test_an_epoch_whose_records_are_not_whole_is_kept_and_the_record_is_named": (
        "so which files of epoch {} count is unknown; restore it, or remove {}/ yourself",
    ),
    "unit/decision/test_cleaning.py::test_of_an_epoch_that_was_claimed_and_deleted_nothing_goes_before_its_deletion_has_ended": (
        "its deletion has not ended; to finish it, forget the write, or delete its object",
    ),
    "unit/commit/test_tables_that_lead_elsewhere.py::"
    "test_a_table_that_wants_its_files_elsewhere_is_refused_before_staging_and_at_the_commit": (
        "the table {} leads elsewhere by its {}: {}; correct the table",
    ),
    "unit/commit/test_tables_that_lead_elsewhere.py::test_a_dataset_with_files_elsewhere_is_neither_read_nor_written": (
        "the Lance dataset {} has files elsewhere: {}; copy it to one place",
        "which another storage entry ({}) covers, and Lance reaches all by one; copy it to one place",
    ),
    "end_to_end/test_added_columns.py::test_a_compaction_whose_versions_were_cleaned_up_stops_the_write_by_name": (
        "and start a new write under another name: with sink.only: Null it computes what is missing",
    ),
    "end_to_end/test_inherited_stages.py::"
    "test_a_write_that_is_deleted_while_its_results_are_copied_stops_the_new_one_with_a_way_out": (
        "start a new write under another name, without it",
    ),
    "end_to_end/test_changed_rows_upserted.py::test_it_may_be_set_when_the_write_has_stopped_at_a_change": (
        "set source.changes: Upserts if rows are upserted (it takes changed rows, and passes over deleted ones), or {}",
    ),
    "end_to_end/test_columns_of_changed_rows.py::test_rows_without_stable_ids_are_refused_with_a_way_out": (
        "write it anew with enable_stable_row_ids=True, or start a write under another name without it",
    ),
    "end_to_end/test_columns_of_changed_rows.py::test_a_version_that_was_cleaned_up_stops_the_write_with_a_way_out": (
        "which takes all rows (with sink.only: All, if it adds columns); and keep each version until the next epoch has begun",
    ),
    "end_to_end/test_added_columns.py::test_a_dataset_that_is_rewritten_all_the_time_stops_the_write_which_names_the_operation": (
        "let compactions and updates wait; nothing that the steps have done is lost",
    ),
    "end_to_end/test_added_columns.py::test_a_step_that_loses_rows_is_refused_before_a_value_comes_to_the_wrong_row": (
        "in the same order; give None in a column where a row has no value",
    ),
    "end_to_end/test_table_changed_while_staged.py::test_a_change_that_staged_files_do_not_fit_is_refused_with_its_reason": (
        "(its uuid was {} and is {}); start a new write under another name",
        "was made again (or restored to before this write) while the write was running; start a new write",
    ),
    "end_to_end/test_table_changed_while_staged.py::"
    "test_a_staged_file_that_a_cleaner_removed_is_named_and_nothing_is_committed": (
        "its rows are lost to this write: start a new one under another name",
    ),
    "unit/cli/test_cli_forget.py::test_rows_of_a_former_write_of_that_name_are_said_before_everything_is_done_again": (
        "drop the table, or bring the former store back, if that is not meant",
    ),
    "unit/cli/test_cli_forget.py::test_a_table_into_which_nothing_is_appended_is_not_to_be_dropped": (
        "{}; bring the former store back, if that is not meant",
    ),
    "unit/cli/test_cli_forget.py::test_a_forgotten_write_begins_anew_under_its_name": (
        "append them once more, unless the table is dropped before",
        "to write everything again: checkpointed-write forget {}, and then run it",
    ),
    "contract/test_object_store.py::test_a_bucket_that_is_not_there_is_for_a_person_and_never_an_absent_object": (
        "the bucket of {} does not exist; make it, or correct the URI",
    ),
    "unit/protocol/test_quarantine.py::test_the_first_row_beyond_the_limit_ends_the_task_and_says_how_to_go_on": (
        "{}, or raise the limit (spec.quarantine). Rows that are sealed as quarantined stay so",
    ),
    "end_to_end/test_unions.py::test_a_file_that_two_sources_mean_under_two_names_is_refused": (
        "so that its rows would come twice; name it in one of them",
    ),
    "end_to_end/test_table_sources.py::test_a_version_that_was_cleaned_up_stops_the_write_and_is_named": (
        "of {} is gone while rows of it are missing; {}; start a new write for what is left",
    ),
    "end_to_end/test_table_sources.py::test_what_a_person_must_change_is_said": (
        "source: {} at {}; correct source.lance, or make it",
    ),
    "end_to_end/test_table_sources.py::test_a_history_that_no_longer_reaches_back_to_the_last_epoch_stops_the_next_one": (
        "start a new write for it",
    ),
    "end_to_end/test_rows_that_fail.py::test_rows_of_a_file_that_is_gone_stop_a_retry_that_would_lose_them_silently": (
        "put the old file back",
    ),
    "unit/protocol/test_large_records.py::test_what_nobody_could_read_is_refused_before_it_is_put_and_the_way_out_is_said": (
        "name fewer paths in source.files.paths: a folder or a pattern may mean any number of files",
    ),
    "unit/protocol/test_large_records.py::test_a_seal_of_too_many_data_files_is_refused_before_it_is_put": (
        "let source.files.splitSize or checkpoint.interval be shorter, or sink.targetFileSize larger",
    ),
    "end_to_end/test_kafka.py::test_a_topic_that_was_made_again_stops_the_next_epoch": (
        "it had the id {} when its offsets were taken, and {}; start a new write for it",
    ),
    "contract/test_kafka_reader.py::test_values_and_an_entry_that_are_corrected_as_the_message_says_are_read": (
        "name the types by source.kafka.types (string holds any value, as its JSON text), or set onRowError: Quarantine",
        "the values have a field {} themselves; leave it out of the metadata",
        ", or give a field that the first values do not have a type by source.kafka.types",
        "no client of the Kafka cluster {} can be made: {}; correct its entry",
    ),
    "end_to_end/test_bad_lines.py::test_what_says_where_rows_begin_is_refused_once_rows_are_sealed_and_undoing_it_goes_on": (
        "undo the change and the write goes on, or give the new write another metadata.name",
    ),
    "end_to_end/test_steps.py::test_restart_on_a_code_change_drops_what_other_code_has_sealed": (
        "set onCodeChange: Restart to do all rows again with mended code",
    ),
    "unit/cli/test_code_archive.py::test_one_machine_refuses_a_config_map_and_a_suspended_write": (
        "say code.path (a folder) or code.uri (a .py, .zip or .whl file)",
        "spec.suspend: it is set, so nothing is run; take it out, or say false",
    ),
    "unit/cli/validate/test_what_is_foreseen.py::test_what_a_run_would_do_is_foreseen": (
        "a run would do nothing; run --again takes files that came since",
        "a run would do nothing; run --again takes the rows that failed",
        "a run would do nothing; change runNonce to read the whole source again",
    ),
    "unit/cli/validate/test_what_is_told.py::test_what_a_person_has_to_judge_is_noted": (
        "the first epoch would take no rows; set Never or Also until it is committed",
    ),
    "end_to_end/test_steps_that_end_their_process.py::"
    "test_rows_that_end_the_process_are_quarantined_with_how_and_all_others_are_committed": (
        "correct the code, or set onRowError: Quarantine to go on without such rows",
    ),
    "controller/test_recreation.py::test_a_write_that_has_committed_nothing_leaves_nothing_behind_and_its_name_is_free": (
        "the write was deleted; give a new write a new name",
    ),
    "unit/local/test_full_and_read_only_disks.py::"
    "test_a_table_in_a_warehouse_that_is_read_only_is_made_once_the_permissions_are_others": (
        "the warehouse of the catalog {} cannot be written: {}; check the permissions of its folder, and whether its file",
    ),
    "unit/commit/test_new_partition_specs.py::test_a_column_that_is_renamed_as_the_message_says_leaves_the_partition_its_name": (
        "which is that of a column of the output; rename the column in a step",
    ),
    "unit/commit/test_table_types.py::test_a_column_without_a_dot_in_its_name_has_a_lance_dataset": (
        "which in Lance leads into a struct: rename it in a step, or leave it out",
    ),
    "unit/commit/test_catalogs.py::test_a_catalog_that_answers_again_is_opened": (
        "the catalog {} did not answer: {}; check its address",
    ),
    "end_to_end/test_pipelines.py::test_an_argument_that_is_changed_drops_what_a_stage_has_done_so_far": (
        "change an argument of the stage, so that it is done again",
    ),
    "unit/commit/test_ways_out.py::test_a_table_that_is_changed_as_the_message_says_can_be_written": (
        "has the column {} of the type {}, which cannot be written: drop the column",
        "in which rows cannot be put: {}; replace it (WRITE UNORDERED in Spark)",
        "of which no values can be made: {}; replace that partition field",
    ),
    "contract/test_upserts_iceberg_format_3.py::test_a_broken_vector_of_others_stops_the_write_until_the_table_is_rolled_back": (
        "cannot be read: {}; roll the table {} back to a snapshot that can be read",
    ),
    "contract/test_upserts_iceberg_format_3.py::test_a_table_with_a_column_that_has_the_name_of_one_of_row_lineage_is_refused": (
        "which sink.mode: Upsert writes beside it: rename the column",
    ),
    "unit/commit/test_ways_out.py::test_another_column_that_is_named_as_the_message_says_is_a_key": (
        "there is no column {} (there are {}); correct it",
        "the column {} is within another one; name columns of the table",
        "booleans, dates, times, UUIDs and binaries only; name another one",
    ),
    "unit/spark/test_ways_out_of_steps.py::"
    "test_the_columns_that_are_asked_for_are_given_once_the_step_or_the_manifest_is_corrected": (
        "of sink.columns (it gives {}); correct the step, or sink.columns",
    ),
    "unit/cli/test_names_of_local_files.py::test_a_warehouse_that_pyiceberg_would_take_for_another_is_refused_by_name": (
        "{} stands in {}, and begins no name for pyiceberg; use a folder without it",
    ),
    "unit/cli/test_names_of_local_files.py::"
    "test_a_question_mark_that_sqlalchemy_would_take_for_options_is_refused_until_it_is_quoted": (
        "what follows a ? is taken for options (name=value); write %3F for a ? in the name of a file or folder",
    ),
    "unit/formats/test_lance_stager.py::test_rows_that_lance_does_not_take_need_a_change_of_the_step_or_of_the_table": (
        "Lance does not take the rows for {}: {}; correct the step that gives it, or the type in the table",
    ),
    "contract/test_code_object.py::test_a_version_is_known_by_its_head_and_no_other_is_taken_for_it": (
        "{} are the most; put large files elsewhere, or into the image",
        "put the file into an object store (s3://, gs://, az://), or into the image and say code.path",
    ),
    "contract/iceberg_tables/test_format_3.py::"
    "test_a_table_whose_metadata_would_lose_something_is_refused_and_taken_without_that": (
        "write the table through a REST catalog, whose server writes these files",
    ),
    "end_to_end/test_table_sources.py::test_with_skip_only_what_was_appended_is_taken_although_files_were_rewritten": (
        "onReplaced: Skip to take only what was appended since",
    ),
    "end_to_end/test_changed_rows_of_iceberg.py::test_it_may_be_set_when_the_write_has_stopped_at_a_change": (
        "set source.changes: Upserts if rows are upserted, for a table of format version 3 (it takes changed rows",
    ),
    "end_to_end/test_changed_rows_of_iceberg.py::test_a_table_of_format_2_is_refused_until_it_is_upgraded": (
        "upgrade it (set its property format-version to 3), or start a write under another name without it",
    ),
    "end_to_end/test_changed_rows_of_iceberg.py::"
    "test_a_column_of_the_name_of_one_of_row_lineage_is_refused_until_it_is_renamed": (
        "rename that, or start a write under another name without it",
    ),
    "end_to_end/test_stable_row_ids.py::test_rows_that_were_taken_and_deleted_stop_the_next_epoch": (
        "set onReplaced: Process to take all new fragments as new rows, or start a new write",
    ),
    "end_to_end/test_stable_row_ids.py::test_after_the_version_that_was_taken_was_cleaned_up_a_compaction_stops_the_next_epoch": (
        "and keep versions until the next epoch has begun",
    ),
    "end_to_end/test_table_sources.py::test_with_process_rows_of_rewritten_files_come_again": (
        "set onReplaced: Process to take all new fragments as new rows (Skip cannot tell them apart)",
    ),
    "contract/kubernetes/test_crd_on_a_real_api_server.py::test_what_a_write_is_cannot_be_changed": (
        "{} cannot be changed, because it identifies the write; create a new write under a new name",
        "{} of sink.{} cannot be changed, because it identifies the write; create a new write under a new name",
        "create a new write under a new name (rows of this one are sealed)",
    ),
    "end_to_end/test_unions.py::test_sources_that_cannot_be_united_are_both_named": (
        "give the column a type by source.files.types (of CSV and JSON), ",
    ),
    "end_to_end/test_table_sources.py::test_a_dataset_that_is_the_sink_by_another_spelling_is_refused": (
        "source and sink are one table ({}): what a run appends would be the next one's input; write to another table",
    ),
    "end_to_end/test_table_sources.py::test_a_dataset_that_was_made_again_is_told_from_the_one_that_was_read": (
        "is another than when the write began: the dataset was made again; start a new write",
    ),
    "end_to_end/test_row_keys.py::test_where_there_is_no_source_row_that_is_said": (
        "call row_key() in a row step before that one, and pass the key on as a column",
    ),
    "end_to_end/test_bad_lines.py::test_lines_that_were_set_apart_are_taken_by_a_later_epoch_that_can_read_them": (
        "checkpointed-write failed {} lists them, quarantine.retry takes them again",
    ),
    "unit/cli/test_cli_init.py::test_nothing_is_overwritten": (
        "{} is there already, and nothing is overwritten; move it, or work in another folder",
    ),
    "unit/cli/test_cli_init.py::test_one_of_several_is_taken_when_it_is_named": (
        "there are several kinds of files, or folders; name one:{}",
    ),
    "end_to_end/test_init.py::test_what_init_writes_is_run_as_it_is": (
        "put your function into {}, then: checkpointed-write preview {}",
    ),
}
