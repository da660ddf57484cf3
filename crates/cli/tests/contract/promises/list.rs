//! Every sentence and table row of docs/guarantees.md, in its order, with the tests that show it.

/// A sentence or table row of the page.
pub(super) struct Promise {
    /// The text, with single spaces.
    pub(super) text: &'static str,
    pub(super) shown: Shown,
}

/// Why a promise may be on the page.
pub(super) enum Shown {
    /// Tests show it: `CRATE: NAME` is a test function, `SUITE: CASE` a case of a suite or of the matrix.
    By(&'static [&'static str]),
    /// It is no promise.
    Explains(&'static str),
}

const fn shown(text: &'static str, tests: &'static [&'static str]) -> Promise {
    Promise { text, shown: Shown::By(tests) }
}

const fn explains(text: &'static str, reason: &'static str) -> Promise {
    Promise { text, shown: Shown::Explains(reason) }
}

/// In the order of the page.
pub(super) const PROMISES: &[Promise] = &[
    explains(
        "The promises of thalweg about your messages and files, whatever happens to the process, the disk or a server.",
        "introduces the page",
    ),
    shown(
        "Each sentence and each row is shown by tests, which a test lists (`crates/cli/tests/contract/promises/list.rs`).",
        &["cli: each_promise_names_the_tests_that_show_it"],
    ),
    shown(
        "`make soak` interrupts every pair of components at random for as long as you like.",
        &["cli: soak"],
    ),
    shown(
        "**Nothing is lost.**",
        &[
            "cli: every_source_into_every_sink",
            "cli: soak",
            "cli: kill_9_at_any_moment_and_a_restart_lose_no_record",
        ],
    ),
    shown(
        "A message is acknowledged to its source only when every sink it leads to has it, or when it lies in the dead letters with its reason.",
        &[
            "engine: the_state_has_what_is_acknowledged",
            "record: each_origin_is_answered_once_with_the_worst_of_its_parts",
            "net: a_request_is_answered_when_its_message_is_delivered_and_not_before",
            "net: a_request_is_done_when_each_message_is_delivered_or_rejected",
        ],
    ),
    shown(
        "A message that was not acknowledged is read again, or sent again by its sender.",
        &[
            "source: file -> file",
            "source: http -> file",
            "source: socket, acknowledge -> file",
            "net: what_is_not_delivered_is_to_be_sent_again",
        ],
    ),
    shown(
        "Messages whose sender does neither are lost only if a kill meets them on their way.",
        &[
            "source: socket -> file",
            "source: syslog -> file",
            "local: a_run_continued_after_crashes_keeps_what_comes_only_once",
        ],
    ),
    shown(
        "**With `--state DIR`**, a run that was stopped or killed continues where its last checkpoint was.",
        &[
            "cli: kill_9_at_any_moment_and_a_restart_lose_no_record",
            "cli: a_run_with_state_continues",
            "cli: a_run_that_continues_reads_only_what_is_new",
        ],
    ),
    shown(
        "From files to files every message is there **once**.",
        &[
            "message_sink: file -> file",
            "message_sink: file -> fan-out of two files",
            "message_sink: file -> objects",
            "file_sink: files, lines -> directory",
            "file_sink: files, lines -> objects, files",
        ],
    ),
    shown(
        "To servers every message is sent **at least once**.",
        &[
            "message_sink: file -> http",
            "message_sink: file -> http, failing server",
            "message_sink: file -> socket, acknowledge",
            "message_sink: file -> socket, failing server",
        ],
    ),
    shown(
        "**Without `--state`**, a job starts from the beginning and replaces its output, as `cp` does.",
        &[
            "local: what_exists_is_treated_as_on_exists_says",
            "local: a_file_of_a_run_that_broke_off_is_replaced_or_added_to_at_its_last_whole_message",
            "cli: a_job_without_a_state_replaces_its_output",
        ],
    ),
    shown(
        "A service (`http`, `socket`, `syslog`...) appends, because its messages never come again.",
        &[
            "local: a_service_without_a_state_adds_to_what_it_wrote_before",
            "files: messages_of_a_service_are_never_written_over_others_even_without_a_state",
            "cli: every_source_says_whether_its_messages_come_again",
        ],
    ),
    shown(
        "So does a job with `remove`, whose input is gone.",
        &["cli: a_later_run_does_not_replace_what_was_written_of_files_that_are_removed"],
    ),
    shown(
        "Messages of one source keep their **order** on the way to a sink.",
        &[
            "cli: every_source_into_every_sink",
            "cli: order_is_kept_with_many_copies_and_any_budget",
            "runtime: any_order_of_arrival_leaves_in_the_order_of_tickets",
        ],
    ),
    shown(
        "| SIGTERM, SIGINT | Sources stop; the next run reads the rest of a file that was being read. What is in flight is delivered, and temporary errors are retried, for at most `--drain-timeout` (60 s). The exit code is 0, or 3 if something could not be delivered: the next run delivers it. | The same, but a job starts over. |",
        &[
            "cli: a_signal_drains_and_that_is_done",
            "cli: a_run_that_is_asked_to_stop_tries_again_until_its_server_is_back",
            "cli: help",
            "engine: a_run_that_is_asked_to_stop_leaves_the_rest_of_a_file_to_a_later_run",
            "engine: the_drain_timeout_counts_from_the_request_to_stop",
            "engine: a_run_that_does_not_drain_names_what_is_left",
            "engine: the_last_checkpoint_stays_when_the_drain_timeout_expires",
            "local: a_stop_ends_the_reading_of_a_large_file",
            "message_sink: file -> file",
        ],
    ),
    shown(
        "| a second signal, `kill -9`, a crash | The next run continues at the last checkpoint. Output files are cut back to it. | The next run starts over. Unfinished output is replaced. |",
        &[
            "cli: a_second_signal_ends_what_cannot_drain",
            "engine: an_aborted_run_ends_without_draining",
            "local: a_run_killed_at_any_step_is_continued_without_loss_or_repetition",
            "local: a_file_of_a_run_that_broke_off_is_replaced_or_added_to_at_its_last_whole_message",
            "message_sink: file -> file",
        ],
    ),
    shown(
        "| loss of power | As `kill -9`. A checkpoint is on the disk before anything is acknowledged. Output is on the disk as the table of sinks says. | Complete output is on the disk as the table of sinks says. |",
        &[
            "cli: a_checkpoint_is_on_the_disk",
            "cli: a_file_is_on_the_disk_before_it_has_its_name_unless_fsync_is_never",
            "engine: committed_is_what_was_saved_where_positions_are_saved",
            "engine: a_wait_ends_with_a_save_that_began_after_it",
        ],
    ),
    shown(
        "| a server that does not answer, or fails for a while | The sink tries again without end, and input waits meanwhile. | The same. |",
        &[
            "cli: a_run_that_is_asked_to_stop_tries_again_until_its_server_is_back",
            "engine: a_sink_that_cannot_be_opened_yet_is_opened_later",
            "engine: requests_are_under_way_up_to_the_limit_and_what_was_refused_is_sent_again",
            "net: a_server_that_is_down_at_first_gets_it_later_and_one_that_is_silent_is_overloaded",
            "message_sink: file -> http, failing server",
        ],
    ),
    shown(
        "| a full disk, an error that stays | The sink `file` keeps what it has, and the run ends with exit code 3. The next run continues when there is room. `objects`, and `file` with `encode: parquet`, retry a full disk without end, and input waits meanwhile. | The same, but the next run starts over. |",
        &[
            "cli: a_disk_that_fills_up_keeps_what_it_has_and_the_run_goes_on_when_there_is_room",
            "cli: a_full_disk_stops_the_run_and_says_so",
            "message_sink: file -> objects, rotate",
            "message_sink: file -> file, Parquet by column",
        ],
    ),
    shown(
        "| damage of the state directory | The next run names the damaged file and the way out, and changes nothing. | - |",
        &["engine: a_damaged_file_is_named_and_nothing_is_changed_or_all_is_there"],
    ),
    shown(
        "A checkpoint has the positions of sources, the state of sinks and transforms, and the last dead letter, all of one moment.",
        &[
            "engine: a_checkpoint_has_the_same_messages_in_all_sinks",
            "engine: positions_and_states_are_there_after_reopening",
            "cli: a_letter_of_a_killed_run_is_there_once",
        ],
    ),
    shown(
        "It is saved twice a second and at the end of a run.",
        &[
            "engine: a_checkpoint_is_due_twice_a_second_and_later_after_one_that_took_long",
            "engine: the_last_checkpoint_stays_when_the_drain_timeout_expires",
        ],
    ),
    shown(
        "Before a checkpoint, sources wait until everything in flight is settled; the pause to the next one is at least twenty times as long, at most 10 s.",
        &[
            "runtime: sources_wait_while_they_are_held_back_and_a_hold_waits_for_what_moves",
            "engine: a_checkpoint_is_due_twice_a_second_and_later_after_one_that_took_long",
        ],
    ),
    shown(
        "There is no such pause while thousands of full objects wait for a checkpoint.",
        &[
            "engine: a_sink_with_thousands_of_steps_asks_for_a_checkpoint_at_once_and_only_once",
            "engine: a_checkpoint_is_due_twice_a_second_and_later_after_one_that_took_long",
        ],
    ),
    shown(
        "If messages move for more than five seconds, because a sink retries or a `limit` holds them back, what is settled is saved as it is.",
        &["engine: what_is_settled_is_saved_after_five_seconds_in_which_something_moved"],
    ),
    shown(
        "Behind a transform that counts (`add_sequence`, `add_id`, `sample`, `parse_csv`, `pack`), and before several sinks, they wait for up to a minute first; after a kill, some messages may then be counted or written twice.",
        &[
            "engine: an_exact_state_is_not_saved_while_something_moves",
            "engine: a_slow_sink_is_waited_for_if_others_would_write_twice",
        ],
    ),
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
        "| `lines`, `csv` | continue within each file, except one of `remote_files` | read the files that the source sends |",
        &[
            "file_reader: files, lines -> file",
            "file_reader: files, csv -> file",
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
        "| `generate` | continues with its next message | sends nothing |",
        &["source: generate -> file", "local: a_later_run_makes_what_was_still_to_come"],
    ),
    shown(
        "| file readers of your own | Read a file again from its beginning, unless it was read to its end. SIGTERM waits for that end. | read the files that the source sends |",
        &["engine: a_file_whose_messages_have_no_offsets_is_read_to_its_end_by_a_run_that_is_asked_to_stop"],
    ),
    shown(
        "| `http`, `http_upload`, `socket` with `acknowledge` | requests without an answer are lost to us, and sent again by their clients | - |",
        &[
            "source: http -> file",
            "source: http_upload, lines -> file",
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
        "| `stdin` | What was read and not written is lost. If it is a named pipe, a record that was read in part is torn: the next run takes its rest for the first record. | - |",
        &["source: stdin -> file", "cli: a_record_that_a_killed_run_had_read_in_part_is_torn"],
    ),
    shown(
        "| `pipe` | What was read and not written is lost. What comes before the next delimiter is rejected: the killed run may have read its beginning. After SIGTERM nothing is lost that is delivered before the drain timeout. | - |",
        &[
            "source: pipe -> file",
            "cli: the_rest_of_a_message_that_a_killed_run_has_read_is_an_error",
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
        "| `socket` without `acknowledge`, `statsd`, `websocket` | At least once, as far as the system took it. Nothing tells whether it arrived. | - |",
        &[
            "message_sink: file -> statsd",
            "message_sink: file -> websocket",
            "net: messages_are_told_apart_in_every_way",
            "net: a_server_that_is_down_at_first_or_goes_away_gets_it_later",
            "net: messages_are_counted_by_name_and_sent_once",
            "net: every_client_gets_each_message_from_when_it_came",
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
    shown(
        "| `file`, `files`, `objects`, `spool`, `journald`, `generate` | once | at least once |",
        &[
            "cli: every_source_into_every_sink",
            "matrix: file -> file",
            "matrix: files, lines -> directory",
            "matrix: objects, lines -> objects, files",
            "matrix: spool -> file",
            "matrix: generate -> objects",
            "matrix: file -> stdout",
            "matrix: files, lines -> http",
            "matrix: spool -> socket, acknowledge",
            "matrix: generate -> spool",
        ],
    ),
    shown(
        "| `kafka` | once, as long as its partitions stay with this member | at least once |",
        &["source: kafka -> file", "message_sink: file -> kafka"],
    ),
    shown(
        "| `remote_files` | at least once: all that was read is read again | the same |",
        &[
            "cli: every_source_into_every_sink",
            "matrix: remote_files, lines -> file",
            "matrix: remote_files, lines -> http",
        ],
    ),
    shown(
        "| `http`, `http_upload`, `socket` with `acknowledge` | Once, except what a client sends again because its answer was lost. | At least once: a client without an answer sends again what was in flight. |",
        &[
            "cli: every_source_into_every_sink",
            "matrix: http -> file",
            "matrix: http_upload, lines -> directory",
            "matrix: socket, acknowledge -> file, rotate",
            "matrix: http -> spool",
            "matrix: socket, acknowledge -> http",
        ],
    ),
    shown(
        "| `socket` without `acknowledge`, `syslog`, UDP, `proxy`, `stdin`, `pipe`, `exec`, `internal_logs` | At most once. What is in the output stays: it is not cut back to a checkpoint, also in a compressed file. | at most once, if the sink does not have to try again |",
        &[
            "cli: messages_of_a_compressed_file_are_kept_when_a_run_is_killed",
            "cli: every_source_into_every_sink",
            "matrix: socket -> file",
            "matrix: syslog -> file",
            "matrix: stdin -> objects",
            "matrix: pipe -> http",
            "matrix: proxy -> proxy",
            "local: what_no_source_sends_again_stays",
        ],
    ),
    shown(
        "A graph may lead to several sinks.",
        &["cli: two_thousand_sinks_get_everything", "message_sink: file -> fan-out of two files"],
    ),
    shown(
        "A checkpoint is taken while nothing moves, so all sinks and the dead letters have the same messages.",
        &[
            "engine: a_checkpoint_has_the_same_messages_in_all_sinks",
            "message_sink: file -> fan-out of two files",
            "cli: a_letter_of_a_killed_run_is_there_once",
        ],
    ),
    explains("A kill can make a run write twice:", "introduces a list"),
    shown(
        "what was in flight when one of several sinks took longer than a minute for it, or a lone sink or a transform longer than five seconds (a server that fails, a `limit` with a low rate);",
        &["engine: what_is_settled_is_saved_after_five_seconds_in_which_something_moved"],
    ),
    explains(
        "the part of a batch that a full Parquet table has, if a transform divides batches before a `failover`;",
        "says what is not promised",
    ),
    explains(
        "what other sinks of the graph wrote since an unfinished Parquet table was begun: a table cannot be continued, and transforms that count may skip numbers in it;",
        "says what is not promised",
    ),
    explains(
        "what clients send again, in each of several sinks, and its dead letters;",
        "says what is not promised",
    ),
    explains(
        "what sources that send again sent since the last checkpoint, if others in the graph cannot.",
        "says what is not promised",
    ),
    shown(
        "For its source, a buffer on disk is a sink: a message is acknowledged when it is synced to the disk.",
        &[
            "cli: kill_9_at_any_moment_loses_nothing_that_waits_in_a_buffer",
            "engine: a_job_ends_when_its_buffer_is_empty",
        ],
    ),
    shown(
        "It is then not lost by a kill or a loss of power.",
        &[
            "engine: what_was_appended_is_read_once_and_in_order_whatever_happens_between",
            "cli: kill_9_at_any_moment_loses_nothing_that_waits_in_a_buffer",
        ],
    ),
    shown(
        "Messages leave a buffer in the order in which they came.",
        &[
            "engine: what_was_appended_is_read_once_and_in_order_whatever_happens_between",
            "cli: a_dead_sink_behind_a_buffer_holds_nothing_up_and_gets_everything_later",
        ],
    ),
    shown(
        "A dead sink behind a buffer holds up neither the other sinks nor the end of a run, until the buffer is full.",
        &[
            "engine: a_dead_sink_behind_a_buffer_holds_up_neither_its_neighbour_nor_the_end_of_the_run",
            "cli: a_dead_sink_behind_a_buffer_holds_nothing_up_and_gets_everything_later",
        ],
    ),
    shown(
        "After SIGTERM the sink has five seconds, and the exit code is 0: the next run delivers the rest.",
        &[
            "cli: a_dead_sink_behind_a_buffer_holds_nothing_up_and_gets_everything_later",
            "engine: what_a_sink_has_when_it_is_left_is_no_failure_and_comes_again",
        ],
    ),
    shown(
        "Through a buffer, every message is delivered at least once.",
        &["cli: kill_9_at_any_moment_loses_nothing_that_waits_in_a_buffer"],
    ),
    explains(
        "After a kill, the source sends again what its last checkpoint does not cover, and the buffer may have it already.",
        "says what is not promised",
    ),
    explains("A dead letter may then be there twice.", "says what is not promised"),
    shown(
        "With `when_full: drop_newest` or `drop_oldest`, a full buffer loses messages, and counts them.",
        &[
            "cli: a_full_buffer_drops_new_messages_which_leave_by_errors",
            "engine: what_was_appended_is_read_once_and_in_order_whatever_happens_between",
        ],
    ),
    shown(
        "With `wait`, a full buffer holds up its input as its sink would.",
        &["engine: buffers_share_the_limit_of_the_process_and_a_batch_larger_than_it_is_refused"],
    ),
    shown(
        "| `add_sequence`, `add_id` | continue with the next number |",
        &[
            "transforms: a_restart_changes_nothing",
            "cli: messages_keep_their_numbers_when_a_sink_that_collects_is_killed",
        ],
    ),
    shown(
        "| `dedupe` | remembers the keys before the first message that was not settled: none is lost, some may pass twice |",
        &[
            "transforms: a_restart_changes_nothing",
            "transforms: a_message_that_was_on_its_way_at_a_kill_passes_again",
        ],
    ),
    shown(
        "| `limit` | continues with the tokens that it had; with `key`, each key has a whole burst again |",
        &[
            "transforms: a_restart_changes_nothing",
            "transforms: a_restart_does_not_fill_the_bucket",
            "transforms: buckets_of_keys_are_full_after_a_restart",
        ],
    ),
    shown(
        "| `sample` | continues its count, or the random numbers of its `seed` |",
        &["transforms: a_restart_changes_nothing"],
    ),
    shown(
        "| `parse_csv` with `header` | remembers the header of each file |",
        &[
            "transforms: a_restart_changes_nothing",
            "transforms: a_run_that_continues_within_a_file_knows_its_header",
        ],
    ),
    shown(
        "| `pack` | Continues its numbers, and the unfinished file of the checkpoint. A file whose messages come again replaces the one that a killed run delivered. |",
        &[
            "files: a_later_run_continues_the_count_and_gives_the_number_of_an_unfinished_file_again",
            "files: an_unfinished_file_of_a_killed_run_is_continued_with_what_no_checkpoint_has",
            "files: only_files_that_are_always_built_again_have_keys",
            "files: a_file_that_is_built_again_replaces_what_it_was_before",
            "files: a_file_that_is_built_again_replaces_the_object_that_it_was_before",
            "message_sink: file -> directory, pack",
        ],
    ),
    shown("Without `--state` they start afresh.", &["cli: a_transform_without_a_state_starts_afresh"]),
    shown(
        "`write` and `upload` write a file that comes again to the same place.",
        &["file_transform: files, lines -> write", "file_transform: files, lines -> upload"],
    ),
    shown(
        "`exec` runs again for a file that no checkpoint covers.",
        &["cli: a_command_runs_again_for_a_file_that_no_checkpoint_covers"],
    ),
    shown(
        "A message or file that cannot be processed is kept with its reason and content, unless a pipeline takes `errors`.",
        &[
            "cli: malformed_json_among_good_records_is_kept_and_the_rest_goes_on",
            "cli: good_files_arrive_and_bad_ones_leave_by_errors_with_their_reason",
            "cli: letters_are_listed_shown_and_removed",
            "engine: letters_keep_bytes_that_are_not_text",
        ],
    ),
    shown(
        "It counts as settled when it is stored on the disk.",
        &[
            "cli: a_letter_of_a_killed_run_is_there_once",
            "cli: a_run_whose_dead_letters_are_full_says_so_and_acknowledges_nothing_more",
        ],
    ),
    shown(
        "Letters of messages that come again after a kill are removed before.",
        &["cli: a_letter_of_a_killed_run_is_there_once"],
    ),
    shown(
        "When the limits of `dead_letters` are reached, nothing more is acknowledged and the run says so: it waits, and fails when its input ends (`when_full: wait`), or fails at once (`error`).",
        &[
            "cli: a_run_whose_dead_letters_are_full_says_so_and_acknowledges_nothing_more",
            "engine: letters_that_do_not_fit_are_refused_as_a_whole_unless_the_oldest_are_to_be_dropped",
        ],
    ),
    shown(
        "With `drop`, the oldest letters go.",
        &[
            "cli: a_million_letters_stay_within_their_bounds_and_are_told_of_in_a_few_lines",
            "engine: the_oldest_letters_go_when_there_are_too_many",
        ],
    ),
    shown(
        "`errors replay` removes a letter with the first checkpoint after its message is delivered, so a replay that is killed continues where it was.",
        &[
            "cli: letters_are_processed_again_once_the_configuration_is_right",
            "cli: a_replay_that_was_killed_does_not_deliver_its_finished_part_again",
        ],
    ),
    shown(
        "Dead letters of a run without `--state` are kept with the next run's.",
        &["cli: letters_of_several_runs_without_a_state_are_kept"],
    ),
    shown(
        "Checkpoints and dead letters belong to one configuration.",
        &["cli: letters_belong_to_one_configuration"],
    ),
    shown(
        "A state directory has its owner's path in the file `owner`, and another configuration is refused.",
        &["cli: a_state_folder_of_another_configuration_is_refused"],
    ),
    shown(
        "You may edit the configuration, and move or rename it: if nothing is at the recorded path any more, the new one continues.",
        &["cli: a_state_folder_of_another_configuration_is_refused"],
    ),
    shown(
        "To hand the directory over while both exist, delete `owner`.",
        &["cli: a_state_folder_of_another_configuration_is_refused"],
    ),
    shown(
        "Without `--state`, dead letters are in `.thalweg/NAME` beside the configuration `NAME`.",
        &["cli: letters_belong_to_one_configuration"],
    ),
    shown(
        "Messages of one source, or of one file, reach a sink in the order in which they were read, also through parallel transforms and across restarts.",
        &[
            "cli: every_source_into_every_sink",
            "cli: order_is_kept_with_many_copies_and_any_budget",
            "runtime: any_order_of_arrival_leaves_in_the_order_of_tickets",
            "file_reader: files, lines -> file",
        ],
    ),
    explains(
        "No order holds between sources, with `ordered: false`, with `concurrency` above one in a sink, after a failover, and for replayed dead letters.",
        "says what is not promised",
    ),
];
