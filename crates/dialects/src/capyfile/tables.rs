//! Lists capyfile's operations and parameters, and what each becomes.
//!
//! One table serves everything: the reader checks names against it, and a test compares the page
//! `docs/from-capyfile.md` with it.

/// An operation of capyfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `filesystem_input_read`
    FilesystemInputRead,
    /// `http_multipart_form_input_read`
    HttpMultipartFormInputRead,
    /// `http_octet_stream_input_read`
    HttpOctetStreamInputRead,
    /// `file_size_validate`
    FileSizeValidate,
    /// `file_type_validate`
    FileTypeValidate,
    /// `file_time_validate`
    FileTimeValidate,
    /// `exiftool_metadata_cleanup`
    ExiftoolMetadataCleanup,
    /// `image_convert`
    ImageConvert,
    /// `command_exec`
    CommandExec,
    /// `filesystem_input_write`
    FilesystemInputWrite,
    /// `filesystem_input_remove`
    FilesystemInputRemove,
    /// `input_forget`
    InputForget,
    /// `s3_upload`
    S3Upload,
}

impl Operation {
    /// Returns the operation's name in a service definition.
    pub fn name(self) -> &'static str {
        self.kind().map_or("", |kind| kind.name)
    }

    /// True if the operation reads files and so begins a phase.
    pub fn reads(self) -> bool {
        matches!(
            self,
            Self::FilesystemInputRead | Self::HttpMultipartFormInputRead | Self::HttpOctetStreamInputRead
        )
    }

    pub(super) fn kind(self) -> Option<&'static OperationKind> {
        KINDS.iter().find(|kind| kind.operation == self)
    }
}

/// The type of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Text.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
    /// A list of texts.
    List,
}

/// Whether a parameter is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The operation is impossible without it.
    Required,
    /// capyfile requires it, although some of capyfile's own examples omit it; then this value is used.
    Assumed(&'static str),
    /// It may be omitted.
    Optional,
}

/// A parameter of an operation.
#[derive(Debug, Clone, Copy)]
pub struct ParameterRule {
    /// The parameter's name.
    pub name: &'static str,
    /// A second accepted name, where capyfile's documentation differs from its program.
    pub also: Option<&'static str>,
    /// The type of its value.
    pub takes: Takes,
    /// Whether it is required.
    pub need: Need,
    /// The equivalent of the parameter here, in the words of the page.
    pub becomes: &'static str,
}

/// An operation with its parameters.
#[derive(Debug)]
pub struct OperationKind {
    /// The operation.
    pub operation: Operation,
    /// The operation's name.
    pub name: &'static str,
    /// The equivalent of the operation here, in the words of the page.
    pub becomes: &'static str,
    /// The operation's parameters.
    pub parameters: &'static [ParameterRule],
}

const fn rule(name: &'static str, takes: Takes, need: Need, becomes: &'static str) -> ParameterRule {
    ParameterRule { name, also: None, takes, need, becomes }
}

const fn kind(
    operation: Operation,
    name: &'static str,
    becomes: &'static str,
    parameters: &'static [ParameterRule],
) -> OperationKind {
    OperationKind { operation, name, becomes, parameters }
}

use Need::{Assumed, Optional, Required};
use Takes::{Flag, List, Number, Text};

/// All operations, in the order of the page.
pub const KINDS: &[OperationKind] = &[
    kind(
        Operation::FilesystemInputRead,
        "filesystem_input_read",
        "source `files`. Matching folders are skipped. In the middle of a processor it begins a new phase after the \
         previous one has ended; files of the previous phase end there, as in capyfile",
        &[rule(
            "target",
            Text,
            Required,
            "`path`, a pattern with Go's rules: `**` means `*`, which also matches names that begin with a dot",
        )],
    ),
    kind(
        Operation::HttpMultipartFormInputRead,
        "http_multipart_form_input_read",
        "source `http_upload` with `accept: multipart`; only in `thalweg serve`",
        &[],
    ),
    kind(
        Operation::HttpOctetStreamInputRead,
        "http_octet_stream_input_read",
        "source `http_upload` with `accept: body`; only in `thalweg serve`",
        &[],
    ),
    kind(
        Operation::FileSizeValidate,
        "file_size_validate",
        "transform `check_size`",
        &[
            rule("minFileSize", Number, Optional, "`min`; 0 or less means no bound"),
            rule("maxFileSize", Number, Optional, "`max`; 0 or less means no bound"),
        ],
    ),
    kind(
        Operation::FileTypeValidate,
        "file_type_validate",
        "transform `check_type`",
        &[rule(
            "allowedMimeTypes",
            List,
            Required,
            "`allow`. A single text is a list of one; `image/*` allows any image; an empty list is a mistake",
        )],
    ),
    kind(
        Operation::FileTimeValidate,
        "file_time_validate",
        "transform `check_time`. Times need no quotes",
        &[
            rule("minAtime", Text, Optional, "`min_accessed`"),
            rule("maxAtime", Text, Optional, "`max_accessed`"),
            rule("minMtime", Text, Optional, "`min_modified`"),
            rule("maxMtime", Text, Optional, "`max_modified`"),
            rule("minCtime", Text, Optional, "`min_changed`"),
            rule("maxCtime", Text, Optional, "`max_changed`"),
        ],
    ),
    kind(
        Operation::ExiftoolMetadataCleanup,
        "exiftool_metadata_cleanup",
        "transform `strip_metadata`: thalweg's own code for JPEG, PNG and WebP, and exiftool otherwise",
        &[ParameterRule {
            name: "overrideOriginalFile",
            also: Some("overwriteOriginalFile"),
            takes: Flag,
            need: Optional,
            becomes: "`in_place`. capyfile's documentation calls it `overwriteOriginalFile`, which is accepted too",
        }],
    ),
    kind(
        Operation::ImageConvert,
        "image_convert",
        "transform `convert_image`. A file that already has the type is left unchanged (`same: keep`)",
        &[
            rule(
                "toMimeType",
                Text,
                Required,
                "`to`; `application/pdf`, which failed for every file, is a mistake",
            ),
            rule(
                "quality",
                Text,
                Assumed("high"),
                "`quality`: `best` is 100, `high` 75, `medium` 50, `low` 25, anything else 75; also a number from 1 to 100",
            ),
        ],
    ),
    kind(
        Operation::CommandExec,
        "command_exec",
        "transform `exec`; a command runs for each file and never without one",
        &[
            rule("commandName", Text, Required, "`command`"),
            rule("commandArgs", List, Optional, "`args`; values are not HTML-escaped"),
            rule("outputFileDestination", Text, Optional, "`output`"),
            rule(
                "allowParallelExecution",
                Flag,
                Optional,
                "`one_at_a_time` if it is `false`; otherwise commands run in parallel, as they always did in capyfile",
            ),
        ],
    ),
    kind(
        Operation::FilesystemInputWrite,
        "filesystem_input_write",
        "transform `write` with `existing: replace`",
        &[
            rule("destination", Text, Required, "`path`"),
            rule(
                "useOriginalFilename",
                Flag,
                Assumed("false"),
                "`name`. If `true`, the original name, with the extension of the detected type in place of its own (if it has one). \
                 If `false`, 21 random characters and that extension",
            ),
        ],
    ),
    kind(
        Operation::FilesystemInputRemove,
        "filesystem_input_remove",
        "transform `remove`",
        &[rule("removeOriginalFile", Flag, Assumed("false"), "`original`")],
    ),
    kind(Operation::InputForget, "input_forget", "transform `forget`", &[]),
    kind(
        Operation::S3Upload,
        "s3_upload",
        "transform `upload`; the name is 21 random characters and the extension of the detected type",
        &[
            rule("accessKeyId", Text, Required, "`url`"),
            rule("secretAccessKey", Text, Required, "`url`"),
            rule("sessionToken", Text, Optional, "`url`"),
            rule(
                "endpoint",
                Text,
                Required,
                "`url`. The bucket goes before the host if the endpoint contains `{bucket}.` or ends with `amazonaws.com`, else into the path",
            ),
            rule("region", Text, Required, "`url`"),
            rule("bucket", Text, Required, "`url`"),
        ],
    ),
];

/// The keys of an operation besides its name and parameters, with what they become.
pub const SETTINGS: &[(&str, &str)] = &[
    (
        "targetFiles",
        "`for` next to the transform; values other than `without_errors`, `with_errors` and `all` are mistakes",
    ),
    (
        "cleanupPolicy",
        "`output_cleanup` of `exec`. Temporary files are always removed; values other than `keep_files` and `remove_files` are mistakes",
    ),
    ("maxPacketSize", "`concurrency` of the pipeline, in files: the smallest value of all its operations"),
    ("ioTickDelay", "*accepted, and has no effect:* nothing is polled"),
    ("handlerTickDelay", "*accepted, and has no effect:* nothing is polled"),
    ("statusTickDelay", "*accepted, and has no effect:* nothing is polled"),
];
