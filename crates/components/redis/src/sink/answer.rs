//! The reply of a server to the command of a message.

use thalweg_redact::foreign;

use crate::connection::{Redirect, is_temporary};
use crate::resp::Reply;

/// The meaning of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The server has the message.
    Done,
    /// The server never takes the message.
    Refused(String),
    /// The stream has entries with this id, or with later ones.
    NotLast(String),
    /// A retry may succeed.
    Later(String),
    /// Another node of the cluster has the key.
    Moved { slot: u16, at: String, is_once: bool },
}

impl Answer {
    /// Reads a reply.
    pub(super) fn of(reply: Reply) -> Self {
        let Reply::Error(error) = reply else { return Self::Done };
        if let Some(Redirect { slot, at, is_once }) = Redirect::read(&error) {
            return Self::Moved { slot, at: at.to_owned(), is_once };
        }
        let shown = foreign(&error).into_owned();
        match is_temporary(&error) {
            true => Self::Later(shown),
            false if error.contains("equal or smaller than the target stream top item") => {
                Self::NotLast(shown)
            }
            false => Self::Refused(shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_says_whether_a_retry_may_succeed_and_where() {
        let error = |text: &str| Answer::of(Reply::Error(text.to_owned()));
        let refused = |text: &str| Answer::Refused(text.to_owned());
        assert_eq!(Answer::of(Reply::Number(0)), Answer::Done);
        assert_eq!(Answer::of(Reply::Null), Answer::Done);
        for text in ["OOM command not allowed when used memory > 'maxmemory'.", "WRONGTYPE wrong kind", ""] {
            assert_eq!(error(text), refused(text));
        }
        assert_eq!(error("LOADING x"), Answer::Later("LOADING x".to_owned()));
        assert_eq!(error("ERR a\r\u{1b}b"), refused(r"ERR a\r\u{1b}b"));
        let moved = |is_once| Answer::Moved { slot: 7, at: "h:1".to_owned(), is_once };
        assert_eq!((error("MOVED 7 h:1"), error("ASK 7 h:1")), (moved(false), moved(true)));
        let text = "ERR The ID specified in XADD is equal or smaller than the target stream top item";
        assert_eq!(error(text), Answer::NotLast(text.to_owned()));
    }
}
