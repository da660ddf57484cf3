//! The check of the key `schedule`.

use thalweg_config::{Node, decode};

use super::Reader;
use crate::beside;
use crate::registry::report;
use crate::schedule::Schedule;

impl Reader<'_> {
    /// Checks the schedule. It is `None` if a setting, perhaps of its own, cannot be decoded.
    pub(super) fn scheduled(&mut self, root: &Node, schedule: Option<&Schedule>) {
        let Some(node) = root.get("schedule") else { return };
        let mut wrong = self.diagnostics.another();
        let mistakes: Vec<_> = match schedule {
            Some(schedule) => schedule.check().into_iter().collect(),
            None => match decode::<Schedule>(node, &mut wrong) {
                Some(schedule) => schedule.check().into_iter().collect(),
                None => beside::mistakes(node, &wrong, Schedule::check),
            },
        };
        report(mistakes, node, node.span, &mut self.diagnostics);
    }
}
