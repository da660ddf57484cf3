//! The section "Whose state it is".

use super::{Promise, shown};

pub(super) const PROMISES: &[Promise] = &[
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
];
