//! The options of sources and file readers that cut text into messages.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, Mistake};

use super::{Cutter, DEFAULT_LIMIT, Framing, StreamPosition};
use crate::charset::Charset;

/// How text is cut into messages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CutOptions {
    /// How the input is cut into messages. By default each line is a message.
    pub framing: Framing,
    /// The character set of the input, such as `latin1` (as `windows-1252`), `utf-16` or `shift_jis`. The
    /// order of the bytes of `utf-16` is that of the byte order mark, and little-endian without one;
    /// `utf-16le` and `utf-16be` name it. Messages are in UTF-8: a message that is not valid leaves by the
    /// `errors` output. `max_message_bytes` is the size before. The default is `utf-8`, which is passed on as
    /// it is. A byte order mark at the start is removed.
    pub charset: Charset,
    /// The maximum size of a message, at most 1 GiB. The default is 1 MiB. Of a longer message, the first 4
    /// KiB leave by the `errors` output.
    pub max_message_bytes: ByteSize,
}

impl Default for CutOptions {
    fn default() -> Self {
        Self { framing: Framing::default(), charset: Charset::default(), max_message_bytes: DEFAULT_LIMIT }
    }
}

impl CutOptions {
    /// Returns the mistakes that a schema cannot find.
    pub fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.framing.check(self.max_message_bytes);
        if self.framing.join.is_some() && !self.charset.has_ascii() {
            let message = "`join` finds no container logs in this character set.";
            mistakes.push(Mistake::new("charset", message).help("Leave it out: these logs are in UTF-8."));
        }
        mistakes
    }

    /// Creates a cutter that starts at a position in a stream.
    pub fn cutter(&self, from: StreamPosition) -> Cutter {
        Cutter::new(&self.framing, self.max_message_bytes, from)
            .reading(self.charset.ordered(from.big_endian))
    }
}
