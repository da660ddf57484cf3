//! The section "Buffers on disk".

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
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
        "A dead sink behind a buffer holds up neither the other sinks nor the stop of a run, until the buffer is full.",
        &[
            "engine: a_dead_sink_behind_a_buffer_holds_up_neither_its_neighbour_nor_the_end_of_the_run",
            "cli: a_dead_sink_behind_a_buffer_holds_nothing_up_and_gets_everything_later",
        ],
    ),
    shown("A job ends when its buffers are empty.", &["engine: a_job_ends_when_its_buffer_is_empty"]),
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
];
