//! Named points at which a test can interrupt the process.
//!
//! Code passes a point before and after each step that must not be half done: a write, a rename, a
//! checkpoint, an acknowledgement. A test starts the program with `THALWEG_FAILPOINTS` and so decides what
//! happens there: `sink.write.after=kill@3` kills the process (SIGKILL) the third time that the point is
//! reached. The actions are `kill`, `term` (SIGTERM, once), `error` (the step fails with an I/O error) and
//! `full` (it fails as on a full disk). `@3-` is the third time and every later one. Several points are
//! separated by `;`.
//!
//! Kills at random moments do not replace this: a window of a microsecond is hit once in a million kills. The
//! points are always compiled in, since a second build of the program only for tests takes minutes; a point
//! that no test asked for costs one load. The crate `fail` was rejected because its points are strings that
//! nothing lists, and the tests have to visit all of them.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

macro_rules! points {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A point at which a test can interrupt the process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Failpoint {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Failpoint {
            /// All points.
            pub const ALL: &[Failpoint] = &[$(Failpoint::$variant),+];

            /// The name by which tests ask for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Failpoint::$variant => $name,)+
                }
            }
        }
    };
}

points! {
    /// A source has read a batch and is about to send it.
    SourceSend = "source.send",
    /// A batch is about to be written by a sink.
    SinkWriteBefore = "sink.write.before",
    /// A batch was written by a sink and is not acknowledged.
    SinkWriteAfter = "sink.write.after",
    /// A sink is about to flush.
    SinkFlushBefore = "sink.flush.before",
    /// A sink was flushed, and what it wrote is not acknowledged.
    SinkFlushAfter = "sink.flush.after",
    /// A sink is about to finish, at the end of the run.
    SinkFinishBefore = "sink.finish.before",
    /// A sink has finished, and what it wrote is not acknowledged.
    SinkFinishAfter = "sink.finish.after",
    /// A batch was acknowledged.
    Acknowledged = "acknowledged",
    /// A file is about to be processed by a transform or sink of files, which may write it elsewhere.
    FileBefore = "file.before",
    /// A file was processed, and is not handed on or acknowledged.
    FileAfter = "file.after",
    /// Transforms are about to put what they hold back into the state, for a checkpoint.
    PreCommitBefore = "pre_commit.before",
    /// They have put it there, and the checkpoint is not saved.
    PreCommitAfter = "pre_commit.after",
    /// A sink is about to make output visible that a checkpoint covers.
    CommitBefore = "commit.before",
    /// The output is visible, which the next checkpoint will note.
    CommitAfter = "commit.after",
    /// A file is about to be cut to the length that a checkpoint covers.
    TruncateBefore = "truncate.before",
    /// A file was cut.
    TruncateAfter = "truncate.after",
    /// A checkpoint is about to be saved.
    CheckpointBefore = "checkpoint.before",
    /// A checkpoint was saved.
    CheckpointAfter = "checkpoint.after",
    /// Dead letters are about to be stored.
    LettersBefore = "letters.before",
    /// Dead letters were stored and are not acknowledged.
    LettersAfter = "letters.after",
    /// Dead letters are about to be removed, because they were replayed.
    LettersRemoveBefore = "letters.remove.before",
    /// Dead letters were removed.
    LettersRemoveAfter = "letters.remove.after",
    /// A file is about to get its final name, or an object its content.
    RenameBefore = "rename.before",
    /// A file has its final name, or an object its content.
    RenameAfter = "rename.after",
    /// A part of an object is about to be sent.
    PartBefore = "part.before",
    /// The store has a part of an object.
    PartAfter = "part.after",
    /// A file of input is about to be removed.
    RemoveBefore = "remove.before",
    /// A file of input was removed.
    RemoveAfter = "remove.after",
    /// A client is about to receive the answer that its messages are safe.
    AnswerBefore = "answer.before",
    /// A client was sent this answer.
    AnswerAfter = "answer.after",
}

impl Failpoint {
    /// Passes the point. Does nothing unless a test asked for it.
    pub fn pass(self) {
        if let Some(action) = self.due() {
            action.interrupt();
        }
    }

    /// Passes the point, which may fail.
    ///
    /// # Errors
    /// If a test asked for it.
    pub fn check(self) -> io::Result<()> {
        match self.due() {
            Some(Action::Error) => Err(io::Error::other(format!("the test failed {}", self.name()))),
            Some(Action::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(action) => {
                action.interrupt();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn due(self) -> Option<Action> {
        let requests = requests();
        if requests.is_empty() {
            return None;
        }
        requests.iter().filter(|request| request.point == self).find_map(Request::count)
    }
}

/// The action at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Terminate,
    Error,
    Full,
}

impl Action {
    fn interrupt(self) {
        let signal = match self {
            Action::Kill => Signal::KILL,
            Action::Terminate => Signal::TERM,
            Action::Error | Action::Full => return,
        };
        // A process may always signal itself.
        let _ = kill_process(getpid(), signal);
        if self == Action::Kill {
            loop {
                // The signal may be delivered to another thread a moment later.
                std::thread::park();
            }
        }
    }
}

/// A request of a test.
#[derive(Debug)]
struct Request {
    point: Failpoint,
    action: Action,
    /// The time at which it happens, the first being 1.
    time: u64,
    /// True if it also happens at all later times.
    goes_on: bool,
    passed: AtomicU64,
}

impl Request {
    fn parse(text: &str) -> Option<Self> {
        let (name, action) = text.trim().split_once('=')?;
        let (action, time) = action.split_once('@').unwrap_or((action, "1"));
        let point = Failpoint::ALL.iter().copied().find(|point| point.name() == name)?;
        let action = match action {
            "kill" => Action::Kill,
            "term" => Action::Terminate,
            "error" => Action::Error,
            "full" => Action::Full,
            _ => return None,
        };
        let goes_on = time.ends_with('-');
        let time = time.trim_end_matches('-').parse().ok()?;
        Some(Self { point, action, time, goes_on, passed: AtomicU64::new(0) })
    }

    /// Counts a pass. Returns the action if it is due.
    fn count(&self) -> Option<Action> {
        let time = self.passed.fetch_add(1, Ordering::Relaxed) + 1;
        (time == self.time || self.goes_on && time > self.time).then_some(self.action)
    }
}

/// The requests in the environment, read once.
///
/// # Panics
/// If they cannot be understood: a test would otherwise pass without its interruption.
#[expect(clippy::panic, reason = "only tests ask, and they must see that they asked for nothing")]
fn requests() -> &'static [Request] {
    static REQUESTS: OnceLock<Vec<Request>> = OnceLock::new();
    REQUESTS.get_or_init(|| {
        let text = std::env::var("THALWEG_FAILPOINTS").unwrap_or_default();
        let parts = text.split(';').filter(|part| !part.trim().is_empty());
        let parse = |part| Request::parse(part).unwrap_or_else(|| panic!("THALWEG_FAILPOINTS has `{part}`"));
        parts.map(parse).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_due_at_its_time() {
        let request = Request::parse("sink.write.after=kill@2").unwrap();
        assert_eq!(request.point, Failpoint::SinkWriteAfter);
        assert_eq!([(); 3].map(|()| request.count()), [None, Some(Action::Kill), None]);
        let request = Request::parse(" letters.before=full@2-").unwrap();
        assert_eq!([(); 3].map(|()| request.count()), [None, Some(Action::Full), Some(Action::Full)]);
        let request = Request::parse("rename.before=error").unwrap();
        assert_eq!([(); 2].map(|()| request.count()), [Some(Action::Error), None]);
        for wrong in ["kill", "nothing=kill", "rename.before=die", "rename.before=kill@x"] {
            assert!(Request::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn every_name_is_different() {
        let names: std::collections::BTreeSet<_> = Failpoint::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Failpoint::ALL.len());
    }

    #[test]
    fn nothing_happens_unless_asked_for() {
        Failpoint::Acknowledged.pass();
        assert!(Failpoint::RenameBefore.check().is_ok());
    }
}
