//! The standard error output of a program: logged line by line. The failure of the program repeats the last
//! lines.
//!
//! Of a long line, the beginning is logged. More of it is read, so that a secret that crosses the cut is
//! found as a whole. (Rejected: pieces of a fixed size, each logged as a line. The two halves of a secret
//! were logged, as neither is the secret.)

use std::collections::VecDeque;

use thalweg_redact::{longest_secret_or_address, redacted_start};
use thalweg_stream::command::ProcessOutput;

/// The most of a line that is logged, in bytes.
const LINE_BYTES: usize = 4 << 10;
/// The most of the last lines that is kept, in bytes.
const LAST_BYTES: usize = 4 << 10;
/// The most lines that are kept.
const LAST_LINES: usize = 10;

/// Logs the lines of the output. Returns the last ones. Output that cannot be read is not logged.
pub(super) async fn log(mut errors: ProcessOutput, name: &str) -> String {
    let (mut lines, mut last) = (Lines::new(), LastLines::default());
    let mut show = |line: String| {
        tracing::warn!("`{name}`: {line}");
        last.keep(line);
    };
    let mut piece = vec![0; LINE_BYTES];
    loop {
        let read = errors.read(&mut piece).await.unwrap_or_default();
        lines.take(piece.get(..read).unwrap_or_default(), &mut show);
        if read == 0 {
            lines.end(&mut show);
            return last.text();
        }
    }
}

/// Collects bytes into lines.
struct Lines {
    line: Vec<u8>,
    /// The most bytes of a line that are read: enough to find each secret that begins in those to be logged.
    most: usize,
}

impl Lines {
    fn new() -> Self {
        Self { line: Vec::new(), most: LINE_BYTES + longest_secret_or_address() }
    }

    fn take(&mut self, bytes: &[u8], show: &mut impl FnMut(String)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = self.most.saturating_sub(self.line.len());
            self.line.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                self.end(show);
            }
        }
    }

    /// Ends a line, and shows it without secrets unless it is empty.
    fn end(&mut self, show: &mut impl FnMut(String)) {
        let text = String::from_utf8_lossy(&self.line);
        let text = text.trim_end();
        if !text.is_empty() {
            let more = if text.len() > LINE_BYTES { " …" } else { "" };
            show(format!("{}{more}", redacted_start(text, LINE_BYTES)));
        }
        self.line.clear();
    }
}

/// The last lines.
#[derive(Default)]
struct LastLines {
    lines: VecDeque<String>,
    bytes: usize,
}

impl LastLines {
    fn keep(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        // The last line stays, however long it is.
        while self.lines.len() > 1 && (self.lines.len() > LAST_LINES || self.bytes > LAST_BYTES) {
            let first = self.lines.pop_front().unwrap_or_default();
            self.bytes -= first.len();
        }
    }

    fn text(self) -> String {
        Vec::from(self.lines).join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of an output that arrives in pieces of this size.
    fn lines(output: &str, size: usize) -> Vec<String> {
        let (mut lines, mut shown) = (Lines::new(), Vec::new());
        output.as_bytes().chunks(size).for_each(|piece| lines.take(piece, &mut |line| shown.push(line)));
        lines.end(&mut |line| shown.push(line));
        shown
    }

    #[test]
    fn a_secret_that_crosses_the_cut_of_a_long_line_is_replaced_as_a_whole() {
        let secret = "sesame-open-the-door-of-the-cave";
        thalweg_redact::keep(secret, Some("${DOOR}"));
        for before in [LINE_BYTES - 1, LINE_BYTES - 7, LINE_BYTES - secret.len()] {
            let output = format!("{}{secret}{}\nnext\n", "x".repeat(before), "y".repeat(9 << 10));
            let expected = [format!("{}${{DOOR}} …", "x".repeat(before)), "next".to_owned()];
            for size in [1, 1000, 1 << 20] {
                assert_eq!(lines(&output, size), expected, "{before}");
            }
        }
    }

    #[test]
    fn lines_are_found_in_any_pieces_and_empty_ones_are_left_out() {
        for size in 1..12 {
            assert_eq!(lines("one\r\n\n  \ntwo\n\n three", size), ["one", "two", " three"]);
        }
    }

    #[test]
    fn the_last_lines_are_kept_within_their_limits() {
        let mut last = LastLines::default();
        (0..20).for_each(|number| last.keep(number.to_string()));
        assert_eq!(last.text(), "10\n11\n12\n13\n14\n15\n16\n17\n18\n19");
        let mut last = LastLines::default();
        for line in ["a".repeat(100), "b".repeat(4000), "c".repeat(90)] {
            last.keep(line);
        }
        assert_eq!(last.text(), format!("{}\n{}", "b".repeat(4000), "c".repeat(90)));
    }
}
