//! The messages that a sink rejects.

/// Collects the messages that a sink cannot write.
#[derive(Debug, Default)]
pub struct Rejects {
    rows: Vec<(u32, String)>,
}

impl Rejects {
    /// Rejects the message in this row of the batch being written, because no retry can write it. Rows must
    /// be rejected in ascending order.
    pub fn reject(&mut self, row: u32, reason: impl Into<String>) {
        self.rows.push((row, reason.into()));
    }

    /// Returns the rejected rows and reasons since the last call.
    pub fn take(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.rows)
    }
}
