//! The links that a source skips, because they lead out of the folder that it reads.

/// The links that a walk through a folder has skipped.
#[derive(Debug, Default)]
pub(crate) struct LinksOut {
    count: u64,
    first: Option<String>,
}

impl LinksOut {
    /// Counts a link.
    pub(crate) fn add(&mut self, link: impl Into<String>) {
        self.count += 1;
        self.first.get_or_insert_with(|| link.into());
    }

    /// True if no link was skipped.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Reports the links of a source, if there are any. `option` is the one that reads them.
    pub(crate) fn report(&self, source: &str, option: &str) {
        let (count, Some(first)) = (self.count, &self.first) else { return };
        tracing::warn!(
            "`{source}`: {count} links lead out of the folder that is read, and were skipped: the first is `{first}`. \
             `{option}` reads them"
        );
    }
}
