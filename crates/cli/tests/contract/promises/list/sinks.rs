//! The section "Sinks".

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
    shown(
        r#""Once" means: output that no checkpoint covers is cut off or recognised when its messages come again."#,
        &[
            "local: a_run_killed_at_any_step_is_continued_without_loss_or_repetition",
            "local: a_run_continued_after_crashes_writes_every_message_once",
            "files: what_a_run_that_was_cut_off_had_written_is_known_again",
        ],
    ),
    shown(
        r#""At least once" means: what was sent since the last checkpoint is sent again, and nothing else."#,
        &["cli: what_was_sent_since_the_last_checkpoint_is_sent_again_and_nothing_else"],
    ),
    shown(
        "| `file` | once | `fsync: finish` (default): before a file has its name. `flush`: before each checkpoint. `never`: when the system likes. |",
        &[
            "message_sink: file -> file",
            "message_sink: file -> file, gzip",
            "message_sink: file -> file, rotate",
            "message_sink: file -> file, rotate, numbers if taken",
            "message_sink: file -> file, by column",
            "cli: a_file_is_on_the_disk_before_it_has_its_name_unless_fsync_is_never",
            "cli: the_data_of_each_checkpoint_is_on_the_disk_before_it_with_fsync_at_each_flush",
        ],
    ),
    shown(
        "| `directory` | once for each file | with `fsync: true`, before the file counts as delivered |",
        &[
            "file_sink: files, lines -> directory",
            "message_sink: file -> directory, pack",
            "cli: files_of_a_folder_are_on_the_disk_if_fsync_says_so_and_objects_always",
        ],
    ),
    shown(
        "| `objects` of files | once for each file | In a local folder, before the object is visible. A store decides for itself. |",
        &[
            "file_sink: files, lines -> objects, S3, files",
            "file_sink: files, lines -> objects, files",
            "cli: files_of_a_folder_are_on_the_disk_if_fsync_says_so_and_objects_always",
        ],
    ),
    shown(
        "| `objects` of messages | Once. An unfinished object is continued. A full one becomes visible with the next checkpoint and is never written again; without `rotate`, further messages go to `NAME-00002`. | the same |",
        &[
            "message_sink: file -> objects",
            "message_sink: file -> objects, S3",
            "message_sink: file -> objects, S3, rotate",
            "message_sink: file -> objects, rotate",
            "files: an_object_is_continued_by_the_run_after_one_that_was_asked_to_stop",
            "files: a_complete_object_is_never_written_again",
            "files: an_object_that_is_full_is_invisible_until_a_checkpoint_covers_it",
            "files: messages_are_whole_and_in_their_order_however_often_a_run_is_cut_off",
            "cli: files_of_a_folder_are_on_the_disk_if_fsync_says_so_and_objects_always",
        ],
    ),
    shown(
        "| `objects` with `encode: parquet` | Once. An unfinished table is written again. If a transform such as `limit` divides a batch, and a table ends between the parts, a smaller table with the rest follows at the next checkpoint. | the same |",
        &[
            "cli: a_batch_that_a_limit_divides_between_two_tables_is_there_once",
            "engine: the_rest_of_a_divided_batch_is_made_durable_before_a_checkpoint",
            "files: only_what_cannot_be_continued_ends_early_for_a_checkpoint",
        ],
    ),
    shown(
        "| `objects` with columns in the name | Once, in each name as above. Parquet tables of all names are completed together. | the same |",
        &[
            "message_sink: file -> objects, by column",
            "message_sink: file -> objects, Parquet by column",
            "message_sink: file -> objects, S3, Parquet by column",
            "files: each_message_is_there_once_whatever_the_names_and_however_often_a_run_is_cut_off",
        ],
    ),
    shown(
        "| `file` with `encode: parquet` | As `objects`: a file is there when it is complete and a checkpoint covers it. | before a file has its name |",
        &[
            "message_sink: file -> file, Parquet by column",
            "cli: a_batch_that_a_limit_divides_between_two_tables_is_there_once",
        ],
    ),
    shown(
        "| `spool` | At least once: its readers may have taken what a killed run wrote. | with `fsync: true`, before each checkpoint |",
        &[
            "message_sink: file -> spool",
            "buffer: file -> spool",
            "cli: the_data_of_each_checkpoint_is_on_the_disk_before_it_with_fsync_at_each_flush",
        ],
    ),
    shown("| `stdout` | at least once | - |", &["message_sink: file -> stdout"]),
    shown(
        "| `http` | at least once | the server's answer counts |",
        &[
            "message_sink: file -> http",
            "message_sink: file -> http, failing server",
            "cli: what_was_sent_since_the_last_checkpoint_is_sent_again_and_nothing_else",
        ],
    ),
    shown(
        "| `kafka` | at least once | the broker's confirmation counts |",
        &[
            "message_sink: file -> kafka",
            "kafka: a_batch_waits_for_a_broker_that_is_killed_and_is_stored_once_and_in_order",
        ],
    ),
    shown(
        "| `kafka` with `transactional_id` | At least once, each batch as a whole. Messages of a source `kafka` of the same cluster: once. Readers need `read_committed`. | the same |",
        &[
            "message_sink: file -> kafka, transactions",
            "cli: members_that_copy_in_transactions_store_each_record_once",
            "cli: filtered_messages_are_committed_too_and_each_batch_of_a_file_is_a_transaction",
            "kafka: without_a_source_that_commits_each_batch_is_a_transaction_also_after_lost_answers",
            "kafka: a_record_that_is_refused_ends_its_transaction_and_is_rejected_when_it_comes_again",
        ],
    ),
    shown(
        "| `elasticsearch`, `clickhouse`, `loki`, `influxdb` | At least once. The server drops what a run sends again: a document by its `id`, an insert by its token, a line or point by its time. Of what a later run sends again, it drops documents with an `id`, and lines and points with a `time`. | the server's answer counts for each message |",
        &[
            "message_sink: file -> elasticsearch",
            "message_sink: file -> elasticsearch, failing server",
            "message_sink: file -> clickhouse, failing server",
            "message_sink: file -> loki, failing server",
            "message_sink: file -> influxdb, failing server",
            "net: only_documents_that_find_the_server_busy_are_sent_again",
            "net: rows_are_inserted_with_a_token_that_a_second_try_repeats",
            "net: equal_rows_of_several_inserts_are_all_stored",
            "net: the_parts_of_a_batch_get_times_that_differ",
            "net: equal_lines_of_the_parts_of_a_batch_get_times_that_differ",
        ],
    ),
    shown(
        "| `splunk_hec`, `datadog_logs` | At least once. What is sent again is there twice: the servers do not know messages again. | The server's answer counts. With `indexer_ack`, Splunk's confirmation that an event is indexed counts. |",
        &[
            "message_sink: file -> splunk_hec, failing server",
            "message_sink: file -> datadog_logs, failing server",
            "net: an_event_counts_when_it_is_indexed",
            "net: only_the_events_that_are_to_blame_are_refused",
            "net: what_the_intake_refuses_leaves_alone_and_the_rest_is_sent",
        ],
    ),
    shown(
        "| `prometheus_remote_write` | At least once. A receiver keeps one of the samples of a series with the same time. | the receiver's answer counts |",
        &[
            "message_sink: file -> prometheus_remote_write, failing server",
            "net: a_sample_that_is_out_of_order_leaves_alone_and_the_rest_is_sent",
        ],
    ),
    shown(
        "| `otlp` | At least once. A request whose answer was lost is stored twice. | the receiver's answer counts |",
        &[
            "message_sink: file -> otlp, failing server",
            "net: a_request_waits_for_a_receiver_with_too_much_to_do",
            "net: a_bad_record_leaves_alone_with_the_reason_of_the_status",
        ],
    ),
    shown(
        "| `nats` | At least once. With `message_id`, once within the `duplicate_window` of the stream. | the stream's confirmation counts |",
        &[
            "message_sink: file -> nats, stream",
            "nats: a_batch_waits_for_a_server_that_is_away_and_is_stored_once_and_in_order",
            "nats: what_a_message_has_follows_from_the_row_and_what_is_refused_has_its_reason",
        ],
    ),
    shown(
        "| `postgres` | At least once. With `write_mode: upsert`, a row that is stored again replaces itself. | the commit of the transaction counts |",
        &[
            "message_sink: file -> postgres",
            "postgres: fields_are_converted_and_rows_that_are_refused_leave_the_others",
            "postgres: rows_are_inserted_replaced_and_left_as_they_are",
        ],
    ),
    shown(
        "| `postgres` with `exactly_once` | once, from sources whose positions grow | positions are in the transaction of the rows |",
        &[
            "message_sink: file -> postgres, exactly once",
            "postgres: each_message_is_stored_once",
            "postgres: messages_that_come_again_are_stored_once_and_refused_ones_are_tried_again",
            "cli: a_copy_from_table_to_table_that_is_killed_ten_times_has_each_row_once",
            "cli: a_copy_goes_on_when_connections_break_and_the_server_crashes",
        ],
    ),
    shown(
        "| `nats` with `jetstream: false` | At least once, as far as the server took it. Nothing tells whether a subscriber got it. | - |",
        &[
            "nats: subscribers_have_messages_without_a_stream_when_they_are_acknowledged",
            "nats: a_batch_for_subscribers_waits_for_a_server_that_is_away",
        ],
    ),
    shown(
        "| `amqp` | At least once. With `mandatory`, a message that no queue takes leaves by `errors`. | the server's confirmation counts: on its disk with `persistent` and a durable queue |",
        &[
            "message_sink: file -> amqp",
            "amqp: a_batch_waits_for_a_server_that_is_away_and_no_message_is_lost",
            "amqp: what_a_message_has_follows_from_the_row_and_what_no_queue_takes_has_its_reason",
        ],
    ),
    shown(
        "| `mqtt` | At least once. With `qos: 2`, once as long as the run lasts. | the server's confirmation counts |",
        &[
            "message_sink: file -> mqtt",
            "mqtt: a_batch_waits_for_a_server_that_is_away_and_no_message_is_lost",
            "mqtt: with_qos_2_connections_that_are_cut_lose_and_repeat_nothing",
            "mqtt: what_a_message_has_follows_from_the_row_and_what_is_refused_has_its_reason",
        ],
    ),
    shown(
        "| `mqtt` with `qos: 0` | At least once, as far as the server took it. Nothing tells whether a subscriber got it. | - |",
        &["mqtt: what_a_message_has_follows_from_the_row_and_what_is_refused_has_its_reason"],
    ),
    shown(
        "| `redis` | At least once. `set`, `hset`, `sadd` and `zadd` of the same content change nothing the second time. `xadd` with an `id` adds the entry once. | the server's answer counts: on its disk with `appendfsync always` |",
        &[
            "message_sink: file -> redis, stream",
            "message_sink: file -> redis, list",
            "redis: a_batch_waits_for_a_server_that_is_away_and_is_stored_in_order",
            "redis: an_entry_with_an_id_is_in_the_stream_once_however_often_it_is_sent",
            "redis: each_command_writes_its_kind_of_value_and_what_is_refused_has_the_reason_of_the_server",
        ],
    ),
    shown(
        "| `redis` with `publish` | At least once, as far as the server took it. Nothing tells whether a subscriber got it. | - |",
        &["redis: a_published_message_is_at_its_subscribers_when_it_is_acknowledged"],
    ),
    shown(
        "| `aws_kinesis_streams`, `aws_kinesis_firehose`, `aws_cloudwatch_logs` | At least once. What is sent again is there twice: the services do not know records again. | the service's answer counts |",
        &[
            "message_sink: file -> aws_kinesis_streams",
            "message_sink: file -> aws_kinesis_firehose",
            "message_sink: file -> aws_cloudwatch_logs",
            "aws: of_a_request_only_the_records_that_were_not_taken_are_sent_again",
        ],
    ),
    shown(
        "| `aws_sqs`, `aws_sns` | At least once. A queue or topic in order drops what is sent again within 5 minutes, by its `deduplication_id`; without that option, what the same run sends again. | the service's answer counts |",
        &[
            "message_sink: file -> aws_sqs",
            "message_sink: file -> aws_sns",
            "aws: a_queue_in_order_has_each_message_once_although_an_answer_was_lost",
            "aws: what_a_queue_does_not_take_is_sent_again_and_what_it_refuses_has_its_reason",
        ],
    ),
    shown(
        "| `socket` with `acknowledge`, `proxy` | at least once | the server's answer counts |",
        &[
            "message_sink: file -> socket, acknowledge",
            "message_sink: file -> socket, failing server",
            "source: proxy -> proxy",
            "net: a_batch_is_safe_when_it_is_acknowledged_and_not_before",
            "net: nothing_acknowledged_is_lost_when_our_own_source_is_killed",
        ],
    ),
    shown(
        "| `socket` without `acknowledge`, `statsd`, `websocket`, `websocket_client` | At least once, as far as the system took it. Nothing tells whether it arrived. | - |",
        &[
            "message_sink: file -> statsd",
            "message_sink: file -> websocket",
            "message_sink: file -> websocket_client",
            "net: messages_are_told_apart_in_every_way",
            "net: a_server_that_is_down_at_first_or_goes_away_gets_it_later",
            "net: messages_are_counted_by_name_and_sent_once",
            "net: every_client_gets_each_message_from_when_it_came",
            "net: a_connection_that_ended_is_opened_again",
        ],
    ),
    shown("| `remove` | once for each file | - |", &["file_sink: files, lines -> remove"]),
    shown(
        "| `measure`, `discard` | keep nothing | - |",
        &[
            "message_sink: file -> measure",
            "message_sink: file -> discard",
            "local: nothing_is_rejected_and_all_is_counted",
        ],
    ),
    shown(
        "| dead letters | once | before their messages are acknowledged |",
        &[
            "cli: a_letter_of_a_killed_run_is_there_once",
            "cli: a_run_whose_dead_letters_are_full_says_so_and_acknowledges_nothing_more",
        ],
    ),
    shown(
        "`remove` leaves a file where it is, with a warning, if the file was replaced or changed since it was found.",
        &[
            "files: a_file_that_is_another_one_by_now_stays",
            "files: a_file_that_is_replaced_at_the_last_moment_gets_its_name_back",
        ],
    ),
    explains(
        "A write through an open descriptor while the file is being removed is lost.",
        "says what is not promised",
    ),
    explains(
        "A kill in that moment may leave the file as `.thalweg-…` in its folder.",
        "says what is not promised",
    ),
    shown(
        "If the system loses the end of a file that a checkpoint covers, the next run says how many bytes are missing and writes the rest.",
        &["cli: a_file_that_lost_its_end_is_told_of_and_the_rest_is_written"],
    ),
    explains("Existing output, if there is no `--state`:", "introduces a table"),
    shown(
        "| `file` | Replaces the file at the end of the run, also of one that is asked to stop; until then it is `NAME.part`. | appends |",
        &[
            "local: a_file_is_called_part_until_it_is_finished",
            "local: what_exists_is_treated_as_on_exists_says",
            "local: a_service_without_a_state_adds_to_what_it_wrote_before",
        ],
    ),
    shown(
        "| `file` with `rotate` | replaces all pieces | adds pieces |",
        &[
            "local: rotation_replaces_all_pieces_of_the_last_run_and_keeps_so_many",
            "local: a_service_without_a_state_adds_to_what_it_wrote_before",
        ],
    ),
    shown(
        "| `directory`, `objects` of files | `existing` decides; by default files of the same name are replaced | by default a file of the same name becomes `NAME-2` |",
        &[
            "files: what_is_done_with_a_file_that_is_there_is_what_was_asked_for",
            "files: two_files_of_one_name_are_both_there_and_those_of_former_runs_are_replaced",
            "files: what_is_there_is_replaced_or_left_alone_as_is_said",
            "files: files_that_come_only_once_do_not_replace_those_of_an_earlier_run",
        ],
    ),
    shown(
        "| `objects` of messages | replaces objects | writes further objects |",
        &[
            "cli: a_job_without_a_state_replaces_its_output",
            "files: messages_of_a_service_are_never_written_over_others_even_without_a_state",
        ],
    ),
    shown(
        "| `spool`, dead letters | append | append |",
        &[
            "engine: what_was_written_is_read_in_order_whatever_happens_between",
            "cli: letters_of_several_runs_without_a_state_are_kept",
        ],
    ),
    shown(
        "A job with `remove` counts as a service in this table.",
        &["cli: a_later_run_does_not_replace_what_was_written_of_files_that_are_removed"],
    ),
    shown(
        "Two files of one name in one run are both kept, as `NAME` and `NAME-2`.",
        &[
            "files: two_files_of_one_name_are_both_there_and_those_of_former_runs_are_replaced",
            "files: files_of_one_name_do_not_replace_each_other",
        ],
    ),
    shown(
        "With `--state`, so are those of several runs.",
        &[
            "files: a_run_never_replaces_what_an_earlier_one_of_its_state_wrote_from_another_file",
            "files: uploads_of_one_name_in_two_runs_are_both_there",
        ],
    ),
];
