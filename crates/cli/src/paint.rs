//! Colours, where they are wanted.

use std::io::{IsTerminal, stderr, stdout};

/// Colours text, or leaves it as it is.
#[derive(Debug, Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// For the standard error output.
    pub fn stderr() -> Self {
        Self(stderr().is_terminal() && wanted())
    }

    /// For the standard output.
    pub fn stdout() -> Self {
        Self(stdout().is_terminal() && wanted())
    }

    /// For text that is not shown at once.
    pub fn off() -> Self {
        Self(false)
    }

    /// Whether it colours.
    pub fn is_on(self) -> bool {
        self.0
    }

    /// For what matters most.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// For what is there to be overlooked.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// For errors.
    pub fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// For warnings.
    pub fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    /// For names.
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
