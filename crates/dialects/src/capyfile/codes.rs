//! The codes of the problems that a file can have, and their texts.

/// Each code with capyfile's text for it.
pub const CODES: &[(&str, &str)] = &[
    ("FILE_SIZE_IS_TOO_SMALL", "file size is too small"),
    ("FILE_SIZE_IS_TOO_BIG", "file size is too big"),
    ("FILE_MIME_TYPE_IS_NOT_ALLOWED", "file MIME type is not allowed"),
    ("FILE_MIME_TYPE_CAN_NOT_BE_DETERMINED", "file MIME type can not be determined"),
    ("FILE_ATIME_IS_TOO_OLD", "file Atime is too old"),
    ("FILE_ATIME_IS_TOO_NEW", "file Atime is too new"),
    ("FILE_MTIME_IS_TOO_OLD", "file Mtime is too old"),
    ("FILE_MTIME_IS_TOO_NEW", "file Mtime is too new"),
    ("FILE_CTIME_IS_TOO_OLD", "file Ctime is too old"),
    ("FILE_CTIME_IS_TOO_NEW", "file Ctime is too new"),
    ("FILE_CAN_NOT_BE_OPENED", "file can not be opened"),
    ("FILE_CAN_NOT_BE_CLOSED", "file can not be closed"),
    ("FILE_INFO_CAN_NOT_BE_RETRIEVED", "file info can not be retrieved"),
    ("FILE_READ_OFFSET_CAN_NOT_BE_SET", "file read offset can not be set"),
    ("FILE_IS_UNREADABLE", "file cannot be read"),
    ("FILE_IS_UNWRITABLE", "file cannot be written"),
    ("TMP_FILE_CAN_NOT_BE_CREATED", "tmp file can not be created"),
    ("FILE_INPUT_IS_UNREADABLE", "file input is unreadable"),
    ("FILE_INPUT_IS_UNWRITABLE", "file input is unwritable"),
    ("FILE_METADATA_CAN_NOT_BE_WRITTEN", "file metadata can not be written"),
    ("BIMG_IMAGE_PROCESSOR_ERROR", "bimg failed to process the image"),
    ("FILE_S3_FILE_UPLOAD_FAILURE", "failed to upload file to S3"),
    ("FILE_S3_FILE_URL_CAN_NOT_BE_RETRIEVED", "file cannot be uploaded to S3"),
    ("COMMAND_TEMPLATE_CAN_NOT_BE_RENDERED", "command template can not be rendered"),
    ("COMMAND_EXECUTION_ERROR", "command execution error"),
];

/// Returns the text of a code, or the code itself if it is unknown.
pub fn text(code: &str) -> &str {
    CODES.iter().find(|(known, _)| *known == code).map_or(code, |(_, text)| text)
}
