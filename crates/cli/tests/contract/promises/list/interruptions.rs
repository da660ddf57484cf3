//! The section "What interrupts a run".

use super::{Promise, shown};

pub(super) const PROMISES: &[Promise] = &[
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
        &[
            "engine: a_damaged_file_is_named_and_nothing_is_changed_or_all_is_there",
            "cli: damaged_unfinished_output_is_refused_and_continued_once_it_is_restored",
        ],
    ),
    shown(
        "A configuration that is [reloaded](operating/reload.md) interrupts only the parts that it changes, as SIGTERM and a next run do.",
        &[
            "engine: a_part_is_replaced_and_goes_on_where_it_was_while_another_one_is_untouched",
            "engine: a_configuration_that_cannot_be_followed_changes_nothing",
            "cli: a_changed_file_is_followed_and_mistakes_change_nothing",
        ],
    ),
    shown(
        "With `--state` no message of a file is lost by that, and none is repeated unless a sink that is slow, or fails for five minutes, does not deliver what is in flight before the drain timeout.",
        &[
            "engine: random_edits_lose_no_record_and_repeat_none",
            "cli: a_changed_file_is_followed_and_mistakes_change_nothing",
        ],
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
        "If messages move for more than five seconds, because a sink is slow or a `limit` holds them back, what is settled is saved as it is.",
        &["engine: what_is_settled_is_saved_after_five_seconds_in_which_something_moved"],
    ),
    shown(
        "Behind a transform that counts (`add_sequence`, `add_id`, `aggregate`, `reduce`, `sort`, `changes`, `sample`, `parse_csv`, `pack`), and before several sinks, they wait for up to a minute first; after a kill, or a stop or a reload before all is delivered, some messages may then be counted or written twice.",
        &[
            "engine: an_exact_state_is_not_saved_while_something_moves",
            "engine: a_slow_sink_is_waited_for_if_others_would_write_twice",
        ],
    ),
    shown(
        "While none of those that move is settled, because a sink fails or the dead letters are full, the last checkpoint stays, and a stop or a reload repeats nothing where messages are there once.",
        &[
            "engine: the_last_checkpoint_stays_while_a_sink_delivers_nothing",
            "engine: states_are_not_saved_without_the_positions_of_what_they_have",
            "engine: the_last_checkpoint_stays_while_other_messages_are_stuck_than_before",
            "engine: dead_letters_of_what_is_stuck_are_not_covered_with_the_positions_of_others",
            "cli: what_a_run_wrote_while_its_dead_letters_were_full_is_not_written_again_by_the_next_one",
        ],
    ),
    shown(
        "If others are settled meanwhile, these are saved after five minutes.",
        &[
            "engine: input_that_goes_another_way_is_saved_after_minutes_in_which_a_sink_delivers_nothing",
            "engine: a_broker_is_answered_after_minutes_although_an_older_message_is_stuck",
            "engine: a_broker_is_answered_for_a_message_that_was_settled_during_a_save",
            "engine: dead_letters_are_covered_before_their_messages_are_acknowledged",
        ],
    ),
    shown(
        "Before a `limit` that lets messages wait, batches have as many messages as pass in a quarter of a second, at least 16, and few batches wait.",
        &[
            "engine: batches_on_the_way_to_a_rate_are_small_and_few_of_them_wait",
            "engine: batches_grow_while_a_source_does_not_wait_and_are_small_again_after_it_did",
        ],
    ),
    shown(
        "So a checkpoint takes about a second also there, unless fewer than some 10 messages pass in a second.",
        &["cli: a_run_behind_a_slow_limit_is_stopped_soon_and_the_next_one_continues"],
    ),
    shown(
        "This does not hold for a `limit` to which errors, an output of `route`, or a failover lead: more messages wait before it, so that it does not slow down the others.",
        &["engine: a_channel_for_errors_and_sorted_out_messages_is_not_small"],
    ),
];
