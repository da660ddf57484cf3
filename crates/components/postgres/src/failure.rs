//! The meaning of an error of the server.
//!
//! The code of an error (`SQLSTATE`, appendix A of PostgreSQL's documentation) tells rows that can never be
//! stored from a server that is busy, away or set up otherwise. The text is only shown.

use std::error::Error as _;
use std::time::Duration;

use thalweg_engine::{Error, ErrorKind};
use thalweg_redact::foreign;
use tokio_postgres::error::DbError;

/// The most of a text of the server that is shown, in bytes.
const SHOWN: usize = 1000;

/// The routines of the server that report refused rows under any code: the check of row security's policies,
/// and `RAISE` in a trigger. These names are no part of the protocol, and are the same since version 9.5.
const ROUTINES_OF_ROWS: [&str; 2] = ["ExecWithCheckOptions", "exec_stmt_raise"];

/// Why something could not be done on a connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server or the client's library says so.
    Server(tokio_postgres::Error),
    /// The server did not answer in this time.
    Silent(Duration),
    /// The connection ended for this reason.
    Broken(String),
    /// The server sent more than it may, for this reason: it would do so again.
    Excess(String),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl Failure {
    /// Returns the meaning of the failure.
    pub(crate) fn meaning(&self) -> Meaning {
        match self {
            Self::Server(error) => error.as_db_error().map_or(Meaning::Later, Meaning::of),
            Self::Silent(_) => Meaning::Busy,
            Self::Broken(_) => Meaning::Later,
            Self::Excess(_) => Meaning::SetUp,
        }
    }

    /// Returns the text of the failure, with what the server says in detail.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Server(error) => reason(error),
            Self::Silent(time) => format!("the server did not answer within {} s", time.as_secs_f64()),
            Self::Broken(reason) | Self::Excess(reason) => reason.clone(),
        }
    }

    /// Returns an error of a component. `what` says what could not be done.
    pub(crate) fn error(&self, what: impl Into<String>, moment: Moment) -> Error {
        let moment = if matches!(self, Self::Excess(_)) { Moment::Start } else { moment };
        let error = match self.meaning().kind(moment) {
            ErrorKind::Temporary => Error::temporary(what),
            ErrorKind::Overloaded => Error::overloaded(what),
            ErrorKind::Permanent | ErrorKind::ReaderGone | ErrorKind::Enough => Error::permanent(what),
        };
        error.caused_by(self.reason())
    }
}

/// The meaning of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A row is refused: its values, or a rule of the table.
    Rows,
    /// A later attempt may succeed.
    Later,
    /// As later, and the server has too much to do.
    Busy,
    /// The user, the database, the table or the statement is not as the server has it.
    SetUp,
}

impl Meaning {
    fn of(error: &DbError) -> Self {
        Self::of_code_from(error.code().code(), error.routine().unwrap_or_default())
    }

    /// Returns the meaning of a code that a routine of the server reports. A code may stand both for a user
    /// who may not insert and for a row that a policy or a trigger refuses; then the routine tells them
    /// apart.
    fn of_code_from(code: &str, routine: &str) -> Self {
        match Self::of_code(code) {
            Self::SetUp if ROUTINES_OF_ROWS.contains(&routine) => Self::Rows,
            meaning => meaning,
        }
    }

    /// Returns the meaning of a code.
    fn of_code(code: &str) -> Self {
        match (code.get(..2).unwrap_or_default(), code) {
            // Values that do not fit, constraints, views with a condition, limits (an index takes no value of
            // 3 kB, JSON is nested too deeply), exceptions of triggers and functions in any language, two
            // rows for one key.
            ("22" | "23" | "44" | "54" | "38" | "39" | "P0", _) | (_, "21000") => Self::Rows,
            // Too many connections, no memory, a full disk; a statement that took too long.
            ("53", _) | (_, "57014" | "55P03") => Self::Busy,
            // No access, no such database; names and syntax; something that the server does not support; a
            // view that takes no rows.
            ("28" | "3D" | "3F" | "42" | "0A" | "26" | "34", _) | (_, "55000") => Self::SetUp,
            // Among others 40 (deadlocks, serialization), 08 (connections), 57 (shutdown), 25 (read only).
            _ => Self::Later,
        }
    }

    /// The kind of an error that concerns more than some rows.
    fn kind(self, moment: Moment) -> ErrorKind {
        match (self, moment) {
            (Self::Busy, _) => ErrorKind::Overloaded,
            (Self::SetUp | Self::Rows, Moment::Start) => ErrorKind::Permanent,
            _ => ErrorKind::Temporary,
        }
    }
}

/// When an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before anything was read or written: a wrong option ends the run.
    Start,
    /// Later: what was right before may become so again.
    Running,
}

/// Returns the text of an error with its causes.
fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return of_server(error);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the text of an error of the server: its beginning, because it becomes the reason of many rows.
fn of_server(error: &DbError) -> String {
    let mut text = error.message().to_owned();
    for more in [error.detail(), error.hint()].into_iter().flatten() {
        text = format!("{text}: {more}");
    }
    text.truncate(text.floor_char_boundary(SHOWN));
    format!("{} ({})", foreign(&text), error.code().code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_rows_from_servers() {
        for (code, meaning, start, running) in [
            ("23505", Meaning::Rows, ErrorKind::Permanent, ErrorKind::Temporary),
            ("22001", Meaning::Rows, ErrorKind::Permanent, ErrorKind::Temporary),
            ("54000", Meaning::Rows, ErrorKind::Permanent, ErrorKind::Temporary),
            ("P0004", Meaning::Rows, ErrorKind::Permanent, ErrorKind::Temporary),
            ("40001", Meaning::Later, ErrorKind::Temporary, ErrorKind::Temporary),
            ("40P01", Meaning::Later, ErrorKind::Temporary, ErrorKind::Temporary),
            ("53300", Meaning::Busy, ErrorKind::Overloaded, ErrorKind::Overloaded),
            ("57P01", Meaning::Later, ErrorKind::Temporary, ErrorKind::Temporary),
            ("25006", Meaning::Later, ErrorKind::Temporary, ErrorKind::Temporary),
            ("28P01", Meaning::SetUp, ErrorKind::Permanent, ErrorKind::Temporary),
            ("42P01", Meaning::SetUp, ErrorKind::Permanent, ErrorKind::Temporary),
            ("55000", Meaning::SetUp, ErrorKind::Permanent, ErrorKind::Temporary),
            ("55006", Meaning::Later, ErrorKind::Temporary, ErrorKind::Temporary),
            ("", Meaning::Later, ErrorKind::Temporary, ErrorKind::Temporary),
        ] {
            let found = Meaning::of_code(code);
            assert_eq!(found, meaning, "{code}");
            assert_eq!((found.kind(Moment::Start), found.kind(Moment::Running)), (start, running), "{code}");
        }
    }

    #[test]
    fn a_row_that_a_policy_forbids_is_told_from_a_user_who_may_not_insert() {
        assert_eq!(Meaning::of_code_from("42501", "aclcheck_error"), Meaning::SetUp);
        assert_eq!(Meaning::of_code_from("42501", ""), Meaning::SetUp);
        assert_eq!(Meaning::of_code_from("42501", "ExecWithCheckOptions"), Meaning::Rows);
        assert_eq!(Meaning::of_code_from("42501", "exec_stmt_raise"), Meaning::Rows);
        // A trigger may ask for another attempt.
        assert_eq!(Meaning::of_code_from("40001", "exec_stmt_raise"), Meaning::Later);
    }
}
