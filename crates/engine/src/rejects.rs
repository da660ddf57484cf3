//! The messages that a sink rejects.

/// Collects the messages that a sink cannot write.
#[derive(Debug, Default)]
pub struct Rejects {
    rows: Vec<(u32, String)>,
}

impl Rejects {
    /// The message in this row of the batch being written cannot be written, ever. Rows are given in ascending order.
    pub fn reject(&mut self, row: u32, reason: impl Into<String>) {
        self.rows.push((row, reason.into()));
    }

    /// Takes what was rejected since the last time.
    pub fn take(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.rows)
    }
}
