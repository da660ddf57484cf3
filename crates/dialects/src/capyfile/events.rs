//! Formats lines of progress as capyfile prints them.

use super::codes;
use super::tables::Operation;

/// The state of a file at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The operation begins.
    Started,
    /// The operation is done. A check that found a problem is done, too.
    Finished,
    /// The operation could not be done.
    Failed,
    /// There was nothing to do, or the operation does not apply to this file.
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

    /// Returns the status of an operation at its end.
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

/// Returns the message for a status of an operation. `problem` is the code of the file's problem, if it has
/// one. Returns `None` where capyfile prints nothing.
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
        (Op::ImageConvert, Failed) if problem == Some("BIMG_IMAGE_PROCESSOR_ERROR") => {
            "bimg failed to process the image transformation"
        }
        (Op::ExiftoolMetadataCleanup, Failed) if problem == Some("FILE_METADATA_CAN_NOT_BE_WRITTEN") => {
            "exiftool failed to write the file metadata"
        }
        (_, Failed) => codes::text(problem?),
        _ => return None,
    })
}

/// The message for a file that fails a check. For times it differs from the text of the code.
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

/// The message for a file that an operation skips. `policy` is the value of the operation's `targetFiles`.
pub fn not_targeted(policy: &str) -> String {
    format!("skipped due to \"{policy}\" target files policy")
}

/// Formats lines for the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printer {
    /// True if lines have colours.
    pub colours: bool,
}

impl Printer {
    fn styled(self, style: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn red(self, text: &str) -> String {
        self.styled("31", text)
    }

    /// Formats one event: `[/in/a.jpg] file_size_validate FINISHED file size is valid`. Without a file, a
    /// hyphen replaces its name.
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

    /// Formats the error of an operation on a file: `image_convert: the JPEG is damaged`.
    pub fn failed(self, operation: Operation, reason: &str) -> String {
        self.red(&format!("{}: {reason}", operation.name()))
    }

    /// Formats the summary after all events: an empty line, `Completed`, and each failed file with the text
    /// of its problem.
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

    /// Formats the failure of a run.
    pub fn failed_to_run(self, reason: &str) -> String {
        self.red(&format!("Failed to run the processor: {reason}"))
    }

    /// Formats the error for a service name that the definition does not have.
    pub fn service_not_found(self, name: &str) -> String {
        self.red(&format!("Service \"{name}\" not found"))
    }

    /// Formats the error for a processor that the service does not have.
    pub fn processor_not_found(self, name: &str) -> String {
        self.red(&format!("Processor \"{name}\" not found"))
    }

    /// Formats the error for an argument that is not `service:processor`.
    pub fn invalid_processor(self) -> String {
        self.red("Invalid service processor provided. Expected format: <service>:<processor>")
    }

    /// Formats the error for a concurrency mode that is neither `event` nor `lock`.
    pub fn invalid_mode(self) -> String {
        self.red("Invalid concurrency mode provided")
    }
}

/// Formats the text before all events, followed by an empty line.
pub fn running(service: &str, processor: &str) -> String {
    format!("Running {service}:{processor} service processor...\n")
}

/// Formats the message between two iterations.
pub fn sleeping(seconds: u64) -> String {
    format!("sleeping for {seconds} seconds...")
}

/// The message after the last iteration.
pub const LAST_ITERATION: &str = "reached maximum number of iterations";

/// The message after a request to stop.
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
        assert_eq!(
            message(Operation::ImageConvert, Status::Failed, Some("BIMG_IMAGE_PROCESSOR_ERROR")),
            Some("bimg failed to process the image transformation")
        );
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
        assert_eq!(coloured.failed(Operation::CommandExec, "x"), "\x1b[31mcommand_exec: x\x1b[0m");
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
