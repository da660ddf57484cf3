//! The section "Transforms with memory".

use super::{Promise, shown};

pub(super) const PROMISES: &[Promise] = &[
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
        "| `aggregate` | continues the windows of the checkpoint: each message is counted once |",
        &[
            "transforms: runs_that_are_killed_count_each_message_once",
            "transforms: a_run_that_is_stopped_leaves_windows_of_its_state_to_the_next_one",
            "transforms: results_that_are_not_delivered_stay_in_the_state",
            "transforms: sessions_of_runs_that_are_killed_have_each_message_once",
            "transforms: sessions_whose_results_are_not_delivered_stay_in_the_state",
            "cli: messages_are_counted_once_when_a_run_is_killed",
        ],
    ),
    shown(
        "| `reduce` | continues the groups of the checkpoint: each message is merged once |",
        &[
            "transforms: runs_that_are_killed_merge_each_message_once",
            "transforms: a_run_that_is_stopped_leaves_open_groups_of_its_state_to_the_next_one",
            "transforms: a_group_that_was_not_delivered_leaves_again_without_messages_of_the_next_one",
            "cli: messages_are_merged_once_when_a_run_is_killed",
        ],
    ),
    shown(
        "| `sort` | has the messages of the checkpoint, and reads only the rest: each message leaves once |",
        &[
            "transforms: runs_that_are_killed_send_each_message_once",
            "transforms: a_run_that_is_stopped_leaves_the_messages_of_its_state_to_the_next_one",
            "transforms: messages_that_are_not_delivered_stay_in_the_state",
            "cli: messages_are_sorted_once_when_a_run_is_killed",
        ],
    ),
    shown(
        "| `changes` | continues with the values of the checkpoint: no change is lost |",
        &[
            "transforms: any_batches_and_kills_give_the_same",
            "transforms: a_state_of_a_moment_at_which_messages_move_has_no_values",
        ],
    ),
    shown(
        "| `pack` | Continues its numbers, and the unfinished file of the checkpoint. A file whose messages come again replaces the one that a killed run delivered. |",
        &[
            "files: a_later_run_continues_the_count_and_gives_the_number_of_an_unfinished_file_again",
            "files: an_unfinished_file_of_a_killed_run_is_continued_with_what_no_checkpoint_has",
            "cli: large_unfinished_output_is_continued_and_leaves_no_file",
            "files: a_file_that_fails_after_a_checkpoint_has_its_messages_is_not_finished",
            "files: only_files_that_are_always_built_again_have_keys",
            "files: a_file_that_is_built_again_replaces_what_it_was_before",
            "files: a_file_that_is_built_again_replaces_the_object_that_it_was_before",
            "message_sink: file -> directory, pack",
        ],
    ),
    shown("Without `--state` they start afresh.", &["cli: a_transform_without_a_state_starts_afresh"]),
    shown(
        "If a source cannot read its messages again, `aggregate` and `sort` keep nothing, and acknowledge messages when the results of their window, or the sorted output, are delivered; `changes` begins without values.",
        &[
            "transforms: acks_wait_for_the_results_unless_a_run_starts_over",
            "transforms: acks_wait_for_the_output_unless_a_run_starts_over",
            "transforms: a_state_of_a_moment_at_which_messages_move_has_no_values",
            "cli: a_client_is_answered_when_the_results_of_its_window_are_delivered",
        ],
    ),
    shown(
        "`reduce` then acknowledges them when their merged message is delivered.",
        &["transforms: acks_wait_for_the_merged_message_unless_a_run_starts_over"],
    ),
    shown(
        "`write` and `upload` write a file that comes again to the same place.",
        &["file_transform: files, lines -> write", "file_transform: files, lines -> upload"],
    ),
    shown(
        "`exec` runs again for a file that no checkpoint covers.",
        &["cli: a_command_runs_again_for_a_file_that_no_checkpoint_covers"],
    ),
    shown(
        "`errors replay` continues these states, except those of `aggregate`, `reduce`, `sort` and `changes`.",
        &[
            "cli: a_replay_continues_the_keys_and_the_numbers_of_the_runs_around_it",
            "cli: a_letter_that_failed_behind_dedupe_is_not_taken_for_a_repetition_of_itself",
            "engine: a_replay_neither_restores_nor_saves_the_state_of_a_transform_that_replays_apart",
        ],
    ),
    shown(
        "`aggregate` counts letters in windows of their own, none of them late, and sends the results at the end of each part of the replay (a quarter of `memory`); windows that the state has stay open.",
        &[
            "cli: a_replay_leaves_the_windows_of_the_service_open_and_no_letter_is_late",
            "transforms: no_letter_of_a_replay_is_late_and_acks_wait_for_the_end",
        ],
    ),
    shown(
        "`reduce` likewise merges letters into groups of their own.",
        &[
            "transforms: letters_of_a_replay_are_merged_apart_and_acks_wait_for_the_end",
            "engine: a_replay_neither_restores_nor_saves_the_state_of_a_transform_that_replays_apart",
        ],
    ),
    shown(
        "`sort` sorts the letters of each part among themselves.",
        &[
            "transforms: letters_of_a_replay_are_sorted_apart_and_acks_wait_for_the_end",
            "engine: a_replay_neither_restores_nor_saves_the_state_of_a_transform_that_replays_apart",
        ],
    ),
    shown(
        "`changes` begins without values, in the replay and after it.",
        &["transforms: a_state_of_a_moment_at_which_messages_move_has_no_values"],
    ),
    shown(
        "A replay removes these letters when the results are delivered, so one that is killed counts, merges or sends them again.",
        &[
            "transforms: no_letter_of_a_replay_is_late_and_acks_wait_for_the_end",
            "transforms: letters_of_a_replay_are_merged_apart_and_acks_wait_for_the_end",
            "transforms: letters_of_a_replay_are_sorted_apart_and_acks_wait_for_the_end",
        ],
    ),
];
