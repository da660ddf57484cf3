use crate::Span;
use std::fmt;
use std::time::Duration;

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To learn how long the file is, and in which state.
    State,
    /// For bytes that a reader waits for.
    Read,
    /// For bytes that a reader will probably ask for next.
    Ahead,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With all that was asked for.
    Done,
    /// It failed, and is made again after a pause.
    Again {
        /// What went wrong.
        why: String,
        /// How long the pause is.
        pause: Duration,
    },
    /// It failed.
    Failed {
        /// What went wrong.
        why: String,
    },
}

/// One request that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What it was for.
    pub purpose: Purpose,
    /// The range that was asked for; empty for the state.
    pub span: Span,
    /// How many requests were made for it before and failed.
    pub retries: u32,
    /// The status of the reply, where the origin speaks HTTP and has replied.
    pub status: Option<u16>,
    /// How many bytes of the file came.
    pub received: u64,
    /// When the first of them came, or the head if there were none, after the request was made.
    pub first: Option<Duration>,
    /// How long all of it took.
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
            Ending::Again { why, pause } => {
                write!(f, "  again in {:.1} s: {why}", pause.as_secs_f64())
            }
            Ending::Failed { why } => write!(f, "  failed: {why}"),
        }
    }
}
