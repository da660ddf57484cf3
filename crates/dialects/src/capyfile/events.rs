//! Lines of progress, as capyfile prints them.

use super::codes;
use super::tables::Operation;

/// What became of a file at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The operation begins.
    Started,
    /// It is done. That a check has found something wrong is this, too.
    Finished,
    /// It could not be done.
    Failed,
    /// There was nothing to do, or the file is not one of those that the operation is for.
    Skipped,
}

impl Status {
    /// The word that is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Started => "STARTED",
            Self::Finished => "FINISHED",
            Self::Failed => "FAILED",
            Self::Skipped => "SKIPPED",
        }
    }

    /// What an operation says at its end.
    pub fn at_end(operation: Operation, problem: Option<&str>) -> Self {
        let is_check = matches!(
            operation,
            Operation::FileSizeValidate | Operation::FileTypeValidate | Operation::FileTimeValidate
        );
        match problem {
            None => Self::Finished,
            Some(code) if is_check && checked(code).is_some() => Self::Finished,
            Some(_) => Self::Failed,
        }
    }
}

/// What is said when an operation has this status, with the code of the problem if there is one; none where capyfile says nothing.
pub fn message(operation: Operation, status: Status, problem: Option<&str>) -> Option<&str> {
    use Operation as Op;
    use Status::{Failed, Finished, Skipped, Started};
    Some(match (operation, status) {
        (Op::FileSizeValidate, Started) => "file size validation started",
        (Op::FileTypeValidate, Started) => "file type validation started",
        (Op::FileTimeValidate, Started) => "file time validation started",
        (Op::FileSizeValidate | Op::FileTypeValidate | Op::FileTimeValidate, Finished) => match problem {
            Some(code) => checked(code).unwrap_or_else(|| codes::text(code)),
            None if operation == Op::FileSizeValidate => "file size is valid",
            None if operation == Op::FileTypeValidate => "file MIME type is valid",
            None => "file time is valid",
        },
        (
            Op::FilesystemInputRead | Op::HttpMultipartFormInputRead | Op::HttpOctetStreamInputRead,
            Finished,
        ) => "file read finished",
        (Op::FilesystemInputWrite, Started) => "file write started",
        (Op::FilesystemInputWrite, Finished) => "file write finished",
        (Op::FilesystemInputWrite, Failed) => "file write failed with error",
        (Op::FilesystemInputRemove, Started) => "file remove started",
        (Op::FilesystemInputRemove, Finished) => "file remove finished",
        (Op::FilesystemInputRemove, Failed) => "file remove failed with the error",
        (Op::InputForget, Started) => "file is forgotten",
        (Op::ImageConvert, Finished) => "image conversion has finished",
        (Op::ImageConvert, Skipped) => "file already has wanted MIME type",
        (Op::ExiftoolMetadataCleanup, Finished) => "file metadata cleanup has finished",
        (Op::S3Upload, Started) => "S3 file upload has started",
        (Op::S3Upload, Finished) => "S3 file upload has finished",
        (Op::CommandExec, Started) => "command execution has started",
        (Op::CommandExec, Finished) => "command execution has finished",
        (Op::CommandExec, Failed) => "command execution has failed",
        (_, Failed) => codes::text(problem?),
        _ => return None,
    })
}

/// What a check says of a file that it finds wrong: for times it is not the text of the code.
fn checked(code: &str) -> Option<&'static str> {
    Some(match code {
        "FILE_SIZE_IS_TOO_SMALL" => "file size is too small",
        "FILE_SIZE_IS_TOO_BIG" => "file size is too big",
        "FILE_MIME_TYPE_IS_NOT_ALLOWED" => "file MIME type is not allowed",
        "FILE_ATIME_IS_TOO_OLD" => "file atime is too old",
        "FILE_ATIME_IS_TOO_NEW" => "file atime is too new",
        "FILE_MTIME_IS_TOO_OLD" => "file mtime is too old",
        "FILE_MTIME_IS_TOO_NEW" => "file mtime is too new",
        "FILE_CTIME_IS_TOO_OLD" => "file ctime is too old",
        "FILE_CTIME_IS_TOO_NEW" => "file ctime is too new",
        _ => return None,
    })
}

/// What is said of a file that an operation is not for: the policy is the value of its `targetFiles`.
pub fn not_targeted(policy: &str) -> String {
    format!("skipped due to \"{policy}\" target files policy")
}

/// How lines are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printer {
    /// Whether with colours.
    pub colours: bool,
}

impl Printer {
    fn styled(self, style: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn red(self, text: &str) -> String {
        self.styled("31", text)
    }

    /// One event: `[/in/a.jpg] file_size_validate FINISHED file size is valid`. Without a file there is a hyphen.
    pub fn event(
        self,
        original: Option<&str>,
        operation: Operation,
        status: Status,
        message: &str,
    ) -> String {
        let what = self.styled("1", &format!("{} {}", operation.name(), status.word()));
        format!("[{}] {what} {message}", original.unwrap_or("-"))
    }

    /// An operation that could not be done at all.
    pub fn operation_failed(self, operation: Operation, reason: &str) -> String {
        self.red(&format!("{}: {reason}", operation.name()))
    }

    /// What stands after all events, an empty line before it: that it is done, and the files that failed, each with the
    /// text of its problem.
    pub fn completed<'a>(self, failures: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let mut out = format!("\n{}", self.styled("32", "Completed"));
        for (index, (original, text)) in failures.into_iter().enumerate() {
            if index == 0 {
                out.push_str("\n\nFailures:");
            }
            out.push_str(&format!("\n    [{original}] {text}"));
        }
        out
    }

    /// A run that ended before its end.
    pub fn failed_to_run(self, reason: &str) -> String {
        self.red(&format!("Failed to run the processor: {reason}"))
    }

    /// A service that is not the one of the definition.
    pub fn service_not_found(self, name: &str) -> String {
        self.red(&format!("Service \"{name}\" not found"))
    }

    /// A processor that the service has not.
    pub fn processor_not_found(self, name: &str) -> String {
        self.red(&format!("Processor \"{name}\" not found"))
    }

    /// An argument that is not `service:processor`.
    pub fn invalid_processor(self) -> String {
        self.red("Invalid service processor provided. Expected format: <service>:<processor>")
    }

    /// A concurrency mode that is neither `event` nor `lock`.
    pub fn invalid_mode(self) -> String {
        self.red("Invalid concurrency mode provided")
    }
}

/// What stands before all events, an empty line after it.
pub fn running(service: &str, processor: &str) -> String {
    format!("Running {service}:{processor} service processor...\n")
}

/// What is said between two iterations.
pub fn sleeping(seconds: u64) -> String {
    format!("sleeping for {seconds} seconds...")
}

/// What is said after the last iteration.
pub const LAST_ITERATION: &str = "reached maximum number of iterations";

/// What is said when it has been asked to stop.
pub const SHUTTING_DOWN: &str = "shutting down gracefully...";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_fails_a_check_has_finished_it() {
        let small = Some("FILE_SIZE_IS_TOO_SMALL");
        let status = Status::at_end(Operation::FileSizeValidate, small);
        assert_eq!(status, Status::Finished);
        assert_eq!(message(Operation::FileSizeValidate, status, small), Some("file size is too small"));
        let old = Some("FILE_MTIME_IS_TOO_OLD");
        assert_eq!(
            message(Operation::FileTimeValidate, Status::Finished, old),
            Some("file mtime is too old")
        );
        let gone = Some("FILE_CAN_NOT_BE_OPENED");
        let status = Status::at_end(Operation::FileTypeValidate, gone);
        assert_eq!(status, Status::Failed);
        assert_eq!(message(Operation::FileTypeValidate, status, gone), Some("file can not be opened"));
        assert_eq!(Status::at_end(Operation::CommandExec, Some("COMMAND_EXECUTION_ERROR")), Status::Failed);
    }

    #[test]
    fn where_capyfile_is_silent_there_is_no_message() {
        assert_eq!(message(Operation::ImageConvert, Status::Started, None), None);
        assert_eq!(message(Operation::FilesystemInputRead, Status::Started, None), None);
        assert_eq!(message(Operation::InputForget, Status::Finished, None), None);
        assert_eq!(message(Operation::ImageConvert, Status::Failed, Some("NEW_CODE")), Some("NEW_CODE"));
    }

    #[test]
    fn lines_have_colours_where_they_are_wanted() {
        let (plain, coloured) = (Printer { colours: false }, Printer { colours: true });
        let line = |printer: Printer| {
            printer.event(
                Some("/in/a b"),
                Operation::FileSizeValidate,
                Status::Finished,
                "file size is valid",
            )
        };
        assert_eq!(line(plain), "[/in/a b] file_size_validate FINISHED file size is valid");
        assert_eq!(line(coloured), "[/in/a b] \x1b[1mfile_size_validate FINISHED\x1b[0m file size is valid");
        assert_eq!(
            plain.event(None, Operation::CommandExec, Status::Failed, "x"),
            "[-] command_exec FAILED x"
        );
        assert_eq!(plain.completed([]), "\nCompleted");
        assert_eq!(
            plain.completed([("/in/a", "file size is too big"), ("/in/b", "x")]),
            "\nCompleted\n\nFailures:\n    [/in/a] file size is too big\n    [/in/b] x"
        );
        assert_eq!(coloured.completed([]), "\n\x1b[32mCompleted\x1b[0m");
        assert_eq!(running("s", "p"), "Running s:p service processor...\n");
        assert_eq!(coloured.failed_to_run("no"), "\x1b[31mFailed to run the processor: no\x1b[0m");
        assert_eq!(not_targeted("with_errors"), "skipped due to \"with_errors\" target files policy");
    }
}
