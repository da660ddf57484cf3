use crate::Span;
use std::fmt;
use std::time::Duration;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To learn the length and state of the file.
    State,
    /// For bytes that a reader waits for.
    Read,
    /// For bytes that a reader will probably need next.
    Ahead,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// All requested bytes arrived.
    Done,
    /// It failed, and is retried after a pause.
    Retried {
        /// The reason.
        why: String,
        /// The length of the pause.
        pause: Duration,
    },
    /// It failed for good.
    Failed {
        /// The reason.
        why: String,
    },
}

/// One request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The purpose of the request.
    pub purpose: Purpose,
    /// The requested range; empty for the state.
    pub span: Span,
    /// How many earlier requests for the same range failed.
    pub retries: u32,
    /// The HTTP status of the reply, if the origin speaks HTTP and has replied.
    pub status: Option<u16>,
    /// How many bytes of the file arrived.
    pub received: u64,
    /// The time from the request to the first byte, or to the head if there were no bytes.
    pub first: Option<Duration>,
    /// The duration of the whole request.
    pub took: Duration,
    /// How it ended.
    pub ending: Ending,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.purpose {
            Purpose::State => write!(f, "state")?,
            Purpose::Read => write!(f, "read  {}", self.span)?,
            Purpose::Ahead => write!(f, "ahead {}", self.span)?,
        }
        if let Some(status) = self.status {
            write!(f, "  {status}")?;
        }
        if self.purpose != Purpose::State {
            write!(f, "  {} bytes", self.received)?;
        }
        write!(f, "  {:.1} ms", self.took.as_secs_f64() * 1e3)?;
        match &self.ending {
            Ending::Done => Ok(()),
            Ending::Retried { why, pause } => {
                write!(f, "  again in {:.1} s: {why}", pause.as_secs_f64())
            }
            Ending::Failed { why } => write!(f, "  failed: {why}"),
        }
    }
}
