//! The section "In short".

use super::{Promise, shown};

pub(super) const PROMISES: &[Promise] = &[
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
];
