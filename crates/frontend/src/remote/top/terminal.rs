//! The terminal while `top` has it: another screen, no cursor, and keys that are not echoed.

use std::io::{self, IsTerminal, Read, Write, stdin, stdout};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use terminal_size::terminal_size;
use thalweg_redact::for_terminal;

/// Another screen, whose cursor is hidden.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// The usual screen and cursor.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Where the system does not know the size.
const USUAL: (usize, usize) = (80, 24);
/// The value of a special key that is no key.
const NO_KEY: u8 = 0;

/// The terminal, which is left as it was found when this is dropped.
pub(super) struct Terminal {
    /// How the keyboard was, if it is one.
    former: Option<Termios>,
}

impl Terminal {
    pub(super) fn enter() -> io::Result<Self> {
        let former = if stdin().is_terminal() { Some(tcgetattr(stdin())?) } else { None };
        if let Some(former) = &former {
            let mut keys = former.clone();
            // Ctrl-C remains a signal. Ctrl-Z and Ctrl-\ would leave the shell on this screen.
            keys.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            keys.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
            keys.special_codes[SpecialCodeIndex::VQUIT] = NO_KEY;
            tcsetattr(stdin(), OptionalActions::Now, &keys)?;
        }
        let this = Self { former };
        write(ENTER)?;
        Ok(this)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        let found = terminal_size().map(|(width, height)| (usize::from(width.0), usize::from(height.0)));
        found.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(USUAL)
    }

    /// Replaces what is shown. A line that is as wide as the terminal must not be followed by an escape, so
    /// each is cleared first. Below the last row, nothing is cleared.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<_> = lines.iter().map(|line| format!("\x1b[2K{}", for_terminal(line, true))).collect();
        let rest = if lines.len() < self.size().1 { "\r\n\x1b[J" } else { "" };
        write(&format!("\x1b[H{}{rest}", lines.join("\r\n")))
    }

    /// True if a key asks to leave.
    pub(super) fn is_left(&self) -> io::Result<bool> {
        let mut keys = [0; 16];
        match self.former {
            Some(_) => Ok(stdin().lock().read(&mut keys)? > 0 && keys.contains(&b'q')),
            None => Ok(false),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // No other output could report an error.
        let _ = write(LEAVE);
        if let Some(former) = &self.former {
            let _ = tcsetattr(stdin(), OptionalActions::Flush, former);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
