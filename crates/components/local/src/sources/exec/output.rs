//! The output of a program as messages, cut as the options say.

use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use thalweg_codec::framing::{After, Cutter};
use thalweg_engine::{Error, SourceOutput};
use thalweg_stream::cut;

use crate::program::{Messages, TORN};

/// Cuts the output of one run.
pub(super) struct Output {
    cutter: Cutter,
    quiet: Option<Duration>,
    /// The program, as the origin of the messages.
    path: Arc<str>,
}

impl Output {
    pub(super) fn new(
        mut cutter: Cutter,
        quiet: Option<Duration>,
        path: &Arc<str>,
        out: &SourceOutput,
    ) -> Self {
        cutter.within(out.share().budget().limit());
        Self { cutter, quiet, path: path.clone() }
    }
}

impl Messages for Output {
    fn quiet(&self) -> Option<Duration> {
        self.quiet
    }

    async fn send(&mut self, buffer: &Buffer, after: After, out: &mut SourceOutput) -> Result<(), Error> {
        cut::send(&mut self.cutter, buffer, after, Some(&self.path), |_| None, out).await
    }

    fn advance(&mut self) -> usize {
        self.cutter.advance()
    }

    async fn reject_rest(&mut self, rest: &[u8], out: &mut SourceOutput) -> Result<(), Error> {
        cut::reject_rest(&mut self.cutter, rest, TORN, Some(&self.path), out).await
    }
}
