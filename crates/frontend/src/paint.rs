//! Colours, if the output supports them.

use std::io::{IsTerminal, stderr, stdout};

/// Colours text, or leaves it as it is.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// Colours the standard error output, if it is a terminal.
    #[must_use]
    pub fn stderr() -> Self {
        Self(stderr().is_terminal() && wanted())
    }

    /// Colours the standard output, if it is a terminal.
    #[must_use]
    pub fn stdout() -> Self {
        Self(stdout().is_terminal() && wanted())
    }

    /// Colours nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(false)
    }

    /// True if it colours.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.0
    }

    /// Text that matters most.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Text of little weight.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Errors.
    #[must_use]
    pub fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// Warnings.
    #[must_use]
    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    /// Names.
    #[must_use]
    pub fn cyan(self, text: &str) -> String {
        self.with("36", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// See <https://no-color.org>.
fn wanted() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
