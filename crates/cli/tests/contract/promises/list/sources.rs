//! The section "Sources".

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
    shown(
        "| `file` | continues at the last message of the checkpoint | reads what was added |",
        &[
            "source: file -> file",
            "source: file, several -> file",
            "source: file, gzip -> file",
            "local: a_later_run_goes_on_where_the_first_ended",
            "local: a_run_that_is_killed_in_the_middle_loses_and_repeats_nothing_that_was_acknowledged",
        ],
    ),
    shown(
        "| `file` with `follow` | The same. A line is lost if its file is deleted or truncated (`copytruncate`) before a checkpoint covers it: after `kill -9` up to half a second of lines. | - |",
        &[
            "source: file, follow -> file",
            "cli: what_a_checkpoint_has_of_a_followed_file_stays_when_the_file_is_deleted",
        ],
    ),
    shown(
        "| `files` | continues after the files of the checkpoint | sends new and changed files |",
        &[
            "files: a_run_that_was_cut_off_goes_on_after_what_was_safe",
            "files: a_later_run_sends_what_is_new_or_has_changed",
            "source: files, lines -> file",
        ],
    ),
    shown(
        "| `objects` in a store | continues after the objects of the checkpoint | sends new and changed objects |",
        &[
            "files: what_comes_behind_the_listing_is_new_though_a_newer_one_was_sent",
            "files: what_was_changed_again_is_new",
            "source: objects of S3, lines -> file",
            "files: what_was_replaced_within_the_same_second_is_new",
            "cli: a_copy_that_goes_on_sends_only_the_parts_that_are_missing",
        ],
    ),
    shown(
        "| `objects` in a local folder | continues after the files of the checkpoint | sends all again |",
        &[
            "cli: a_killed_run_of_objects_in_a_folder_continues_after_those_of_its_checkpoint",
            "source: objects, lines -> file",
        ],
    ),
    shown(
        "| `remote_files` | sends all again: it has no checkpoint | sends all again |",
        &["source: remote_files, lines -> file"],
    ),
    shown(
        "| `lines`, `csv`, `avro` | continue within each file, except one of `remote_files` | read the files that the source sends |",
        &[
            "file_reader: files, lines -> file",
            "file_reader: files, csv -> file",
            "file_reader: files, avro -> file",
            "files: a_later_run_continues_at_the_block_that_was_saved",
            "engine: a_file_that_was_read_is_known_until_the_position_of_its_source_has_passed_it",
        ],
    ),
    shown(
        "| `spool` | continues within a segment; segments are removed only when a checkpoint covers them | reads what was added |",
        &[
            "buffer: spool -> file",
            "local: a_file_stays_until_all_of_it_is_settled_and_a_later_run_goes_on_in_its_middle",
            "cli: spooled_messages_survive_kill_9_of_the_writer_and_of_the_reader",
        ],
    ),
    shown(
        "| `kafka` | Continues at the checkpoint, or where the group is if that is further. Offsets are committed when a checkpoint covers them. Another member may have delivered again what this one had not committed. | reads what was added |",
        &[
            "source: kafka -> file",
            "source: kafka, broker's protocol -> file",
            "kafka: only_what_is_settled_is_committed_and_a_saved_position_comes_before_that_of_the_group",
            "kafka: members_that_come_and_go_lose_no_record_with_the_classic_protocol",
            "kafka: members_that_come_and_go_lose_no_record_with_the_protocol_of_the_broker",
        ],
    ),
    shown(
        "| `kafka` before a sink `kafka` with transactions | Continues where the last transaction was committed, as any member of the group does. | reads what was added |",
        &["cli: members_that_copy_in_transactions_store_each_record_once"],
    ),
    shown(
        "| `nats` with `stream` | The server delivers messages again that were not acknowledged; those of the checkpoint are not sent on. Messages are acknowledged when a checkpoint covers them. Another run with the same consumer may have delivered what this one had not acknowledged. | reads what was added |",
        &[
            "source: nats, stream -> file",
            "nats: only_what_is_settled_is_acknowledged_however_long_that_takes",
            "nats: what_a_checkpoint_covers_is_acknowledged_and_not_sent_on_again",
            "nats: processes_that_share_a_consumer_lose_no_message",
            "cli: processes_that_share_a_consumer_and_are_killed_lose_no_message",
        ],
    ),
    shown(
        "| `mqtt` with `qos: 1` or `qos: 2` | The server sends messages again that were not acknowledged, as long as it keeps the session. Messages are acknowledged, in their order, when a checkpoint covers them. Those that a checkpoint covers and whose acknowledgement was lost are there again. | reads what was added |",
        &[
            "source: mqtt -> file",
            "mqtt: only_what_is_settled_is_acknowledged_and_in_order",
            "mqtt: with_qos_2_connections_that_are_cut_repeat_nothing",
            "cli: processes_that_share_a_subscription_and_are_killed_lose_no_message",
        ],
    ),
    shown(
        "| `amqp` | The server delivers messages again that were not acknowledged. Messages are acknowledged when a checkpoint covers them. Those that a checkpoint covers and whose acknowledgement was lost are there again, and so are those on their way when a connection breaks. A stream is read again from `x-stream-offset` on. | reads what was added |",
        &[
            "source: amqp -> file",
            "amqp: only_what_is_settled_is_acknowledged",
            "amqp: connections_that_are_cut_lose_nothing",
            "amqp: a_stream_is_read_again_after_a_message_that_failed",
            "cli: processes_that_share_a_queue_and_are_killed_lose_no_message",
        ],
    ),
    shown(
        "| `redis` with `stream` | The server delivers entries again that were not acknowledged; those of the checkpoint are not sent on. Entries are acknowledged when a checkpoint covers them. Another consumer of the group may have delivered what this one had not acknowledged. | reads what was added |",
        &[
            "source: redis, stream -> file",
            "redis: only_settled_entries_are_acknowledged_and_others_are_not_claimed_meanwhile",
            "redis: what_a_checkpoint_covers_is_acknowledged_and_not_sent_on_again",
            "redis: processes_that_share_a_group_lose_no_entry",
            "cli: processes_that_share_a_group_and_are_killed_lose_no_entry",
        ],
    ),
    shown(
        "| `redis` with `list` | Elements that were not removed are read again, also if a checkpoint covers them: those on their way when the run was killed. | reads what was added |",
        &[
            "source: redis, list -> file",
            "redis: elements_stay_in_a_second_list_until_they_are_settled_and_a_restarted_run_reads_them_first",
            "redis: processes_that_share_a_list_lose_no_element",
        ],
    ),
    shown(
        "| `aws_sqs` | The queue delivers messages again that were not deleted; those of the checkpoint are not sent on. Messages are deleted when a checkpoint covers them. Another run may have delivered what this one had not deleted. | reads what was added |",
        &[
            "source: aws_sqs -> file",
            "aws: only_what_is_settled_is_deleted_and_the_rest_is_kept_however_long_that_takes",
            "aws: what_a_checkpoint_covers_is_deleted_and_not_sent_on_again",
            "aws: readers_that_share_a_queue_lose_no_message",
        ],
    ),
    shown(
        "| `aws_kinesis_streams` | continues in each shard behind the last record of the checkpoint | reads what was added |",
        &[
            "source: aws_kinesis_streams -> file",
            "aws: each_shard_is_resumed_at_its_checkpoint_and_all_are_read_without_one",
            "aws: shards_that_continue_a_divided_one_are_read_too",
        ],
    ),
    shown(
        "| `generate` | continues with its next message | sends nothing |",
        &["source: generate -> file", "local: a_later_run_makes_what_was_still_to_come"],
    ),
    shown(
        "| file readers of your own | Read a file again from its beginning, unless it was read to its end. SIGTERM waits for that end. | read the files that the source sends |",
        &["engine: a_file_whose_messages_have_no_offsets_is_read_to_its_end_by_a_run_that_is_asked_to_stop"],
    ),
    shown(
        "| `http`, `http_upload`, `otlp`, `socket` with `acknowledge` | requests without an answer are lost to us, and sent again by their clients | - |",
        &[
            "source: http -> file",
            "source: http_upload, lines -> file",
            "source: otlp -> file",
            "source: socket, acknowledge -> file",
        ],
    ),
    shown(
        "| `socket` without `acknowledge`, `syslog`, UDP, `proxy`, any with `respond: received` or `accepted` | what was received and not written is lost | - |",
        &[
            "source: socket -> file",
            "source: syslog -> file",
            "source: socket, udp -> file",
            "source: syslog, udp -> file",
            "source: proxy -> proxy",
            "cli: every_source_says_whether_its_messages_come_again",
        ],
    ),
    shown(
        "| `postgres` with `table` and a key | Continues in each range behind the last row of the checkpoint. Rows that were committed late are missed without `delay`. | reads what was added |",
        &[
            "source: postgres, table -> file",
            "postgres: ranges_are_read_at_the_same_time_and_a_later_run_continues_in_each",
            "postgres: a_growing_column_is_followed_over_broken_connections_and_equal_values",
            "cli: a_copy_from_table_to_table_that_is_killed_ten_times_has_each_row_once",
        ],
    ),
    shown(
        "| `postgres` with `query`, or a table without a key | reads all again | reads all again |",
        &["postgres: a_query_is_read_as_a_whole_and_what_the_server_lacks_is_named"],
    ),
    shown(
        "| `nats` without `stream` | What was received and not written is lost, and so is what is sent while no run is connected. | - |",
        &["nats: a_subscription_gets_what_is_sent_while_it_runs_also_after_the_server_was_away"],
    ),
    shown(
        "| `mqtt` with `qos: 0` | What was received and not written is lost, and so is what is sent while no run is connected. | - |",
        &["mqtt: messages_of_qos_0_are_read_while_the_source_runs"],
    ),
    shown(
        "| `redis` with `channels` | What was received and not written is lost, and so is what is sent while no run is connected. | - |",
        &["redis: channels_are_heard_while_the_source_runs_also_after_the_server_was_away"],
    ),
    shown(
        "| `stdin` | What was read and not written is lost. After SIGTERM the run also reads what a pipe contains at that moment. If it is a named pipe, a record that was read in part is torn: the next run takes its rest for the first record. | - |",
        &[
            "source: stdin -> file",
            "cli: a_record_that_a_killed_run_had_read_in_part_is_torn",
            "local: a_stopped_run_reads_what_a_pipe_has_and_waits_for_no_more",
        ],
    ),
    shown(
        "| `pipe` | What was read and not written is lost. What comes before the next delimiter is rejected: the killed run may have read its beginning. After SIGTERM the run also reads what the pipe contains at that moment, and nothing is lost that is delivered before the drain timeout. | - |",
        &[
            "source: pipe -> file",
            "cli: the_rest_of_a_message_that_a_killed_run_has_read_is_an_error",
            "local: a_stopped_run_reads_what_ended_writers_have_left",
            "cli: a_message_of_which_a_stopped_run_has_read_a_part_is_whole",
            "cli: everything_that_is_written_while_runs_are_stopped_arrives_once",
        ],
    ),
    shown(
        "| `journald` | Continues behind the last entry of the checkpoint. Entries are lost that the journal deletes before a run reads them. | reads what was added |",
        &["source: journald -> file", "local: a_run_continues_behind_the_saved_cursor"],
    ),
    shown(
        "| `exec` | What was read and not written is lost, and so is what the program had not written. The next run starts the program again. | It runs again. |",
        &["source: exec -> file", "local: a_stop_delivers_what_the_program_writes_while_it_ends"],
    ),
    shown(
        "| `http_client` with `cursor` or without `every` | Continues within the page. If the server no longer answers with it as before, its messages come again, and if the page is gone, those of the poll. | with `cursor` reads what is new; otherwise reads all again, unless the server says that nothing has changed |",
        &[
            "source: http_client, cursor -> file",
            "net: a_later_run_continues_within_a_page_unless_the_page_has_changed",
            "net: a_poll_whose_page_is_gone_is_begun_again",
            "net: links_lead_from_page_to_page_and_the_cursor_is_that_of_the_last_message",
            "net: an_answer_that_has_not_changed_has_no_messages",
        ],
    ),
    shown(
        "| `http_client` with `every` and without `cursor` | what was fetched and not written is lost | - |",
        &["cli: every_source_says_whether_its_messages_come_again"],
    ),
    shown(
        "| `sse` with `replays` | The server sends the events again that came after the last id of the checkpoint. | the same |",
        &[
            "source: sse, replays -> file",
            "net: a_connection_that_ends_is_opened_again_behind_the_last_event",
            "net: a_position_moves_only_with_what_is_settled",
        ],
    ),
    shown(
        "| `sse` without `replays`, `websocket_client` | What was received and not written is lost, unless the server sends it again; so is what is sent while the source is not connected. | - |",
        &[
            "cli: every_source_says_whether_its_messages_come_again",
            "net: messages_come_also_after_the_connection_has_ended",
        ],
    ),
    explains(
        "| `prometheus_scrape` | what was read and not written is lost | - |",
        "says what is not promised",
    ),
    explains("| `internal_logs` | what was not written is lost | - |", "says what is not promised"),
    shown(
        "A file that a transform rewrites in its place (`strip_metadata` with `in_place`) is not sent again by `follow`.",
        &[
            "files: a_watched_file_that_the_run_rewrites_is_not_sent_again_and_one_that_others_change_is",
            "files: in_place_the_run_knows_the_new_file_and_leaves_one_that_others_have_changed",
        ],
    ),
    explains("The next run with `--state` may send it again.", "says what is not promised"),
    shown(
        "A followed file that was rewritten is read from its beginning, also if it begins like the old one and is longer.",
        &["local: a_file_that_was_rewritten_with_the_same_beginning_is_read_again"],
    ),
    shown(
        "A file that is renamed out of the search is read until it was quiet for `rotate_timeout`.",
        &[
            "local: a_renamed_file_is_read_for_as_long_as_its_writer_may_need",
            "local: a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning",
        ],
    ),
    shown(
        "Without `--state`, a `pipe` that is stopped within a message delivers the part that it has read.",
        &["cli: a_run_without_state_delivers_the_part_of_a_message_that_it_has_read"],
    ),
    shown(
        "A client is answered after the checkpoint that covers its messages; without `--state`, when they are delivered.",
        &[
            "cli: acknowledged_messages_survive_kill_9_and_the_run_that_continues",
            "engine: a_wait_ends_with_a_save_that_began_after_it",
            "net: a_request_is_answered_when_its_message_is_delivered_and_not_before",
        ],
    ),
    shown(
        "The answer is 2xx also if some messages went to the dead letters; it has their number.",
        &["net: a_request_is_done_when_each_message_is_delivered_or_rejected"],
    ),
    shown(
        "A socket gets one answer for each message.",
        &[
            "net: what_is_delivered_is_acknowledged_and_not_before",
            "net: two_hundred_clients_each_get_their_own_acknowledgements",
            "net: each_message_is_acknowledged_and_only_those_that_are_not_are_sent_again",
        ],
    ),
    shown(
        "With `respond: received`, the answer comes at once and promises nothing.",
        &[
            "net: what_was_received_can_be_acknowledged_at_once",
            "cli: every_source_says_whether_its_messages_come_again",
        ],
    ),
];
