//! The section "Dead letters".

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
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
    explains(
        "Those of an aborted transaction of `kafka` stay, so they may be there twice.",
        "it limits the sentence before",
    ),
    shown(
        "When the limits of `dead_letters` are reached, nothing more is acknowledged and the run says so: it waits, and fails when its input ends (`when_full: wait`), or fails at once (`error`).",
        &[
            "cli: a_run_whose_dead_letters_are_full_says_so_and_acknowledges_nothing_more",
            "engine: letters_that_do_not_fit_are_refused_as_a_whole_unless_the_oldest_are_to_be_dropped",
        ],
    ),
    shown(
        "A run that waits resumes once letters are removed.",
        &["cli: a_run_whose_dead_letters_are_full_goes_on_once_some_are_removed"],
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
];
