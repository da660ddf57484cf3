//! Why a table cannot be used.

use std::io::ErrorKind;
use std::path::Path;

use thalweg_config::{Mistake, nearest};
use thalweg_engine::Error;

/// Why a table cannot be used, for people.
#[derive(Debug, Clone)]
pub(super) struct Unusable {
    /// The option that is wrong.
    option: &'static str,
    /// The mistake, as a phrase with a full stop.
    message: String,
    /// The way out, as a sentence.
    help: Option<String>,
    cause: Cause,
}

/// The kind of reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its content, or options that do not fit it.
    Content,
    /// There is no memory for it: elsewhere it may be usable.
    Memory,
    /// The system does not let it be read. This may pass.
    System,
    /// A program writes it at this moment.
    Changing,
}

impl Unusable {
    /// The content of the table is wrong, or the option does not fit it. The message is a phrase with a full
    /// stop.
    pub(super) fn new(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into(), help: None, cause: Cause::Content }
    }

    /// A place in the file is wrong. The reason is a phrase.
    pub(super) fn at(path: &Path, place: &str, reason: &str) -> Self {
        Self::new("table", format!("the table `{}` cannot be used: {place}: {reason}.", path.display()))
    }

    /// The system does not let the file be read.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let message = thalweg_engine::io_error("read", path, error).to_string();
        let unusable = Self { cause: Cause::System, ..Self::new("table", message) };
        let text = path.to_string_lossy();
        match error.kind() == ErrorKind::NotFound && (text.contains("://") || text.contains('*')) {
            true => unusable.help("A table is one file of this machine: it has no URL, and no `*`."),
            false => unusable,
        }
    }

    /// The table needs at least this much memory, and may have `most`.
    pub(super) fn too_large(path: &Path, bytes: usize, most: usize) -> Self {
        let (needed, most) = (bytes.div_ceil(1 << 20), most as f64 / f64::from(1 << 20));
        let message = format!(
            "the table `{}` needs {needed} MiB or more in memory, and may take {most:.1} MiB: a quarter of `memory`.",
            path.display()
        );
        let help =
            format!("Set `memory: {}MiB` or more, or choose fewer `columns`.", needed.saturating_mul(5));
        Self { cause: Cause::Memory, ..Self::new("table", message) }.help(help)
    }

    /// A program writes the file at this moment.
    pub(super) fn changing(path: &Path) -> Self {
        let message = format!("the table `{}` changed while it was read.", path.display());
        let help = "Write a new table to another file, and rename it to this one when it is complete.";
        Self { cause: Cause::Changing, ..Self::new("table", message) }.help(help)
    }

    /// The table has no column of this name.
    pub(super) fn no_column<'a>(
        option: &'static str,
        path: &Path,
        column: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        let unusable = Self::new(option, format!("the table `{}` has no column `{column}`.", path.display()));
        match nearest(column, known.clone()) {
            Some(near) => unusable.help(format!("Did you mean `{near}`?")),
            None => {
                let known: Vec<String> = known.take(MOST_NAMED).map(|name| format!("`{name}`")).collect();
                unusable.help(format!("It has {}.", known.join(", ")))
            }
        }
    }

    /// Adds a sentence that says what to do.
    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// True if the table was being written.
    pub(super) fn is_changing(&self) -> bool {
        self.cause == Cause::Changing
    }

    /// True if the same file may be usable later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self.cause, Cause::System | Cause::Changing)
    }

    /// The mistake of a configuration, if the table is unusable wherever it is checked.
    pub(super) fn mistake(&self) -> Option<Mistake> {
        (self.cause == Cause::Content)
            .then(|| Mistake { help: self.help.clone(), ..Mistake::of(self.option, &self.message) })
    }
}

/// At most this many columns are named in a sentence.
const MOST_NAMED: usize = 20;

impl std::fmt::Display for Unusable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)?;
        self.help.iter().try_for_each(|help| write!(formatter, " {help}"))
    }
}

impl From<Unusable> for Error {
    fn from(unusable: Unusable) -> Self {
        Error::permanent(unusable.to_string())
    }
}
