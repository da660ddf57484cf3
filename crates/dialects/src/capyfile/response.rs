//! Builds the answers of capyfile's server.
//!
//! The answers equal capyfile's, byte by byte: its clients read `status` and `code` in the body. Only a
//! client's mistake has a status and a code of its own, 400 instead of 500, unless the server is asked for
//! capyfile's.

use serde::Serialize;

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub http_status: u16,
    /// The body.
    pub body: String,
    /// The type of the body; empty if there is none.
    pub content_type: &'static str,
    /// Where the client is sent to, if the answer is a redirection.
    pub location: Option<String>,
}

/// How the body for a client's mistake begins.
const INVALID: &str = "{\"status\":\"ERROR\",\"code\":\"INVALID_REQUEST\"";

/// The type of every body in JSON.
pub const CONTENT_TYPE: &str = "application/json";

impl Answer {
    fn new(http_status: u16, body: &impl Serialize) -> Self {
        // Text and numbers always serialize. If they ever did not, an empty object would be no false
        // statement.
        let body = serde_json::to_string(body).unwrap_or_else(|_| "{}".to_owned());
        Self { http_status, body: as_go_writes(&body), content_type: CONTENT_TYPE, location: None }
    }

    /// True for the answer to a client's mistake, for which capyfile has no code.
    pub fn is_invalid_request(&self) -> bool {
        self.body.starts_with(INVALID)
    }
}

/// Escapes what Go's encoder of JSON escapes so that a browser cannot take it for HTML or a script, and ends
/// the line. `U+FFFD` stands for bytes of a name that are not UTF-8.
fn as_go_writes(json: &str) -> String {
    let mut written = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        match character {
            '&' | '<' | '>' | '\u{2028}' | '\u{2029}' | '\u{fffd}' => {
                written.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            other => written.push(other),
        }
    }
    written.push('\n');
    written
}

/// A file that was processed without a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Processed {
    /// The address of the uploaded file; empty unless it was uploaded.
    pub url: String,
    /// The generated name: the file's id with the extension of its type.
    pub filename: String,
    /// The name that the client sent.
    #[serde(rename = "originalFilename")]
    pub original_filename: String,
    /// The MIME type, with a charset for text.
    pub mime: String,
    /// The size in bytes.
    pub size: u64,
    status: &'static str,
    code: &'static str,
    message: &'static str,
}

impl Processed {
    /// Returns a file without an address.
    pub fn new(filename: String, original_filename: String, mime: String, size: u64) -> Self {
        Self {
            url: String::new(),
            filename,
            original_filename,
            mime,
            size,
            status: "SUCCESS",
            code: "FILE_SUCCESSFULLY_UPLOADED",
            message: "file successfully uploaded",
        }
    }
}

/// A file that has a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// The name that the client sent.
    #[serde(rename = "originalFilename")]
    pub original_filename: String,
    status: &'static str,
    /// The code of the problem.
    pub code: String,
    /// The message for the client; empty for most codes, see [`message`].
    pub message: String,
}

impl Rejected {
    /// Returns a file with its problem.
    pub fn new(original_filename: String, code: String, message: String) -> Self {
        Self { original_filename, status: "ERROR", code, message }
    }
}

/// Details about a problem beyond its code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Details<'a> {
    /// The smallest or largest allowed size, in bytes.
    pub bound: Option<u64>,
    /// The detected MIME type.
    pub mime: Option<&'a str>,
}

/// Returns the message about a problem for a client. capyfile has messages about sizes and types only; for
/// other codes the message is empty.
pub fn message(code: &str, details: Details<'_>) -> String {
    match (code, details) {
        ("FILE_SIZE_IS_TOO_SMALL", Details { bound: Some(bound), .. }) => {
            format!("file size can not be less than {}", size(bound))
        }
        ("FILE_SIZE_IS_TOO_BIG", Details { bound: Some(bound), .. }) => {
            format!("file size can not be greater than {}", size(bound))
        }
        ("FILE_MIME_TYPE_IS_NOT_ALLOWED", Details { mime: Some(mime), .. }) => {
            format!("file MIME type \"{mime}\" is not allowed")
        }
        _ => String::new(),
    }
}

/// Formats a size in bytes for people: `5.0 KiB`, and from ten on without a fraction: `98 KiB`.
fn size(bytes: u64) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 {
        value /= 1024.0;
        unit += 1;
    }
    let unit = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].get(unit).unwrap_or(&"EiB");
    // One digit first, and then none: capyfile rounds twice.
    let value = (value * 10.0 + 0.5).floor() / 10.0;
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[derive(Serialize)]
struct Result<'a> {
    status: &'a str,
    code: &'a str,
    message: String,
    files: Option<&'a [Processed]>,
    errors: Option<&'a [Rejected]>,
    meta: Meta,
}

#[derive(Serialize)]
struct Meta {
    #[serde(rename = "totalUploads")]
    total: usize,
    #[serde(rename = "successfulUploads")]
    successful: usize,
    #[serde(rename = "failedUploads")]
    failed: usize,
}

/// Returns the answer to a request that was processed: the result of each of its files.
pub fn result(files: &[Processed], errors: &[Rejected]) -> Answer {
    let (successful, failed) = (files.len(), errors.len());
    let total = successful + failed;
    let (http_status, status, code, message) = match (successful, failed) {
        (0, 0) => (200, "UNKNOWN", "NO_FILES_PROVIDED", "no files provided".to_owned()),
        (_, 0) => (200, "SUCCESS", "SUCCESS", format!("successfully uploaded {successful} file(s)")),
        (0, _) => (200, "ERROR", "ERROR", format!("failed to upload {failed} file(s)")),
        _ => (200, "PARTIAL", "PARTIAL", format!("successfully uploaded {successful} of {total} files")),
    };
    let (files, errors) =
        (Some(files).filter(|list| !list.is_empty()), Some(errors).filter(|list| !list.is_empty()));
    let meta = Meta { total, successful, failed };
    Answer::new(http_status, &Result { status, code, message, files, errors, meta })
}

#[derive(Serialize)]
struct Error<'a> {
    status: &'a str,
    code: &'a str,
    message: &'a str,
}

fn error(http_status: u16, code: &str, message: &str) -> Answer {
    Answer::new(http_status, &Error { status: "ERROR", code, message })
}

/// Returns the answer to an address that is not `/service/processor`.
pub fn not_found() -> Answer {
    error(404, "NOT_FOUND", "not found")
}

/// Returns the answer to a service name that the definition does not have.
pub fn service_not_found() -> Answer {
    error(404, "SERVICE_NOT_FOUND", "service not found")
}

/// Returns the answer to a processor that the service does not have.
pub fn processor_not_found() -> Answer {
    error(404, "PROCESSOR_NOT_FOUND", "processor not found")
}

/// Returns the answer to a path that is written in a roundabout way, such as `//service/processor`. Only a
/// reader of pages gets a body: `GET` is true.
pub fn moved(location: String, is_get: bool) -> Answer {
    let shown = location.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let shown = shown.replace('"', "&#34;").replace('\'', "&#39;");
    let body = if is_get { format!("<a href=\"{shown}\">Moved Permanently</a>.\n\n") } else { String::new() };
    let content_type = if is_get { "text/html; charset=utf-8" } else { "" };
    Answer { http_status: 301, body, content_type, location: Some(location) }
}

/// Returns the answer to an address that is not one, such as `/a%zz`.
pub fn bad_address() -> Answer {
    let body = "400 Bad Request".to_owned();
    Answer { http_status: 400, body, content_type: "text/plain; charset=utf-8", location: None }
}

/// Returns the answer if an operation is configured in a way that cannot work. An example of `code` is
/// `IMAGE_CONVERT_OPERATION_CONFIGURATION`.
pub fn configuration(code: &str, message: &str) -> Answer {
    error(500, code, message)
}

/// Returns the answer to a client's mistake: a missing or malformed parameter, or a body that is not the
/// expected form.
pub fn invalid_request(message: &str) -> Answer {
    error(400, "INVALID_REQUEST", message)
}

/// Returns the answer to a body, or a file in it, that exceeds its limit.
pub fn too_large(message: &str) -> Answer {
    error(413, "REQUEST_TOO_LARGE", message)
}

/// Returns the answer to any other error. The log has the details; the client gets none.
pub fn internal() -> Answer {
    error(500, "INTERNAL", "something went wrong")
}

/// The data of the health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health<'a> {
    /// The current time in RFC 3339.
    pub timestamp: &'a str,
    /// The name of the program.
    pub name: &'a str,
    /// The version of the program.
    pub version: &'a str,
    /// The commit that the program was built from.
    pub commit: &'a str,
    /// The state of the process.
    pub system: System<'a>,
}

/// The state of a process, under capyfile's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct System<'a> {
    /// The compiler's version.
    pub version: &'a str,
    /// The number of requests in progress, where capyfile counts goroutines.
    #[serde(rename = "goroutinesCount")]
    pub under_way: u64,
    /// Bytes of memory that the process has from the operating system.
    #[serde(rename = "totalAllocBytes")]
    pub memory: u64,
    /// Bytes leased from the budget, where capyfile reports its heap.
    #[serde(rename = "heapAllocBytes")]
    pub held: u64,
    /// The number of leases, where capyfile reports heap objects.
    #[serde(rename = "heapObjects")]
    pub objects: u64,
}

#[derive(Serialize)]
struct HealthBody<'a> {
    status: &'a str,
    timestamp: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    program: Option<Program<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<System<'a>>,
}

#[derive(Serialize)]
struct Program<'a> {
    name: &'a str,
    version: &'a str,
    commit: &'a str,
}

/// Returns the answer to a health check. From verbosity 1 on it includes the program, from 2 on also the
/// process.
pub fn health(verbosity: u8, health: &Health<'_>) -> Answer {
    let &Health { timestamp, name, version, commit, system } = health;
    let program = (verbosity >= 1).then_some(Program { name, version, commit });
    let system = (verbosity >= 2).then_some(system);
    Answer::new(200, &HealthBody { status: "OK", timestamp, program, system })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processed() -> Processed {
        Processed::new("V1StGXR8_Z5jdHi6B-myT.png".into(), "a \"b\".png".into(), "image/png".into(), 12)
    }

    fn rejected() -> Rejected {
        let details = Details { bound: Some(5 << 10), mime: None };
        let code = "FILE_SIZE_IS_TOO_SMALL";
        Rejected::new("c.txt".into(), code.into(), message(code, details))
    }

    #[test]
    fn results_have_the_keys_of_capyfile_in_their_order() {
        let answer = result(&[processed()], &[rejected()]);
        assert_eq!(answer.http_status, 200);
        assert_eq!(
            answer.body,
            "{\"status\":\"PARTIAL\",\"code\":\"PARTIAL\",\"message\":\"successfully uploaded 1 of 2 files\",\
             \"files\":[{\"url\":\"\",\"filename\":\"V1StGXR8_Z5jdHi6B-myT.png\",\"originalFilename\":\"a \\\"b\\\".png\",\
             \"mime\":\"image/png\",\"size\":12,\"status\":\"SUCCESS\",\"code\":\"FILE_SUCCESSFULLY_UPLOADED\",\
             \"message\":\"file successfully uploaded\"}],\
             \"errors\":[{\"originalFilename\":\"c.txt\",\"status\":\"ERROR\",\"code\":\"FILE_SIZE_IS_TOO_SMALL\",\
             \"message\":\"file size can not be less than 5.0 KiB\"}],\
             \"meta\":{\"totalUploads\":2,\"successfulUploads\":1,\"failedUploads\":1}}\n"
        );
    }

    #[test]
    fn lists_are_null_where_they_are_empty() {
        let all = result(&[processed()], &[]);
        assert!(all.http_status == 200 && all.body.contains("\"errors\":null"), "{all:?}");
        assert!(all.body.contains("\"message\":\"successfully uploaded 1 file(s)\""), "{all:?}");
        let none = result(&[], &[rejected()]);
        assert!(none.http_status == 200 && none.body.contains("\"files\":null"), "{none:?}");
        assert!(none.body.contains("\"message\":\"failed to upload 1 file(s)\""), "{none:?}");
        assert_eq!(
            result(&[], &[]),
            Answer {
                http_status: 200,
                content_type: CONTENT_TYPE,
                location: None,
                body: "{\"status\":\"UNKNOWN\",\"code\":\"NO_FILES_PROVIDED\",\"message\":\"no files provided\",\
                       \"files\":null,\"errors\":null,\
                       \"meta\":{\"totalUploads\":0,\"successfulUploads\":0,\"failedUploads\":0}}\n"
                    .into()
            }
        );
    }

    #[test]
    fn clients_are_told_of_sizes_and_types_only() {
        let bound = |bytes| Details { bound: Some(bytes), mime: None };
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10_188, "9.9 KiB"),
            (10_189, "10 KiB"),
            (99_999, "98 KiB"),
            ((1 << 20) - 1, "1024 KiB"),
            (10 << 20, "10 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            let expected = format!("file size can not be greater than {shown}");
            assert_eq!(message("FILE_SIZE_IS_TOO_BIG", bound(bytes)), expected);
        }
        let mime = Details { bound: None, mime: Some("text/html; charset=utf-8") };
        let said = message("FILE_MIME_TYPE_IS_NOT_ALLOWED", mime);
        assert_eq!(said, "file MIME type \"text/html; charset=utf-8\" is not allowed");
        assert_eq!(message("COMMAND_EXECUTION_ERROR", bound(1)), "");
        assert_eq!(message("FILE_SIZE_IS_TOO_BIG", Details::default()), "");
    }

    #[test]
    fn names_are_escaped_as_go_escapes_them() {
        let file =
            Processed::new("x".into(), "<a>&\u{2028}\u{2029}\u{fffd}\u{7f}\\.txt".into(), "".into(), 1);
        let name = "\"originalFilename\":\"\\u003ca\\u003e\\u0026\\u2028\\u2029\\ufffd\u{7f}\\\\.txt\"";
        let body = result(&[file], &[]).body;
        assert!(body.contains(name) && body.ends_with("}}\n"), "{body}");
    }

    #[test]
    fn readers_of_pages_see_where_they_are_sent_to() {
        let moved_to = moved("/a?b=1&c=\"2\"".into(), true);
        assert_eq!(moved_to.body, "<a href=\"/a?b=1&amp;c=&#34;2&#34;\">Moved Permanently</a>.\n\n");
        assert_eq!(moved("/a".into(), false).body, "");
    }

    #[test]
    fn what_went_wrong_has_a_status_and_a_code() {
        for (answer, http_status, code) in [
            (not_found(), 404, "NOT_FOUND"),
            (service_not_found(), 404, "SERVICE_NOT_FOUND"),
            (processor_not_found(), 404, "PROCESSOR_NOT_FOUND"),
            (invalid_request("a"), 400, "INVALID_REQUEST"),
            (too_large("a"), 413, "REQUEST_TOO_LARGE"),
            (configuration("A_CONFIGURATION", "a"), 500, "A_CONFIGURATION"),
            (internal(), 500, "INTERNAL"),
        ] {
            assert_eq!(answer.http_status, http_status);
            let start = format!("{{\"status\":\"ERROR\",\"code\":\"{code}\",\"message\":\"");
            assert!(answer.body.starts_with(&start), "{answer:?}");
        }
    }

    #[test]
    fn the_health_check_says_more_with_more_verbosity() {
        let system = System { version: "1.90", under_way: 1, memory: 2, held: 3, objects: 4 };
        let all = Health { timestamp: "T", name: "thalweg", version: "1", commit: "c", system };
        assert_eq!(health(0, &all).body, "{\"status\":\"OK\",\"timestamp\":\"T\"}\n");
        assert_eq!(
            health(1, &all).body,
            "{\"status\":\"OK\",\"timestamp\":\"T\",\"name\":\"thalweg\",\"version\":\"1\",\"commit\":\"c\"}\n"
        );
        let body = health(2, &all).body;
        let (_, system) = body.split_once("\"commit\":\"c\",").unwrap();
        assert_eq!(
            system,
            "\"system\":{\"version\":\"1.90\",\"goroutinesCount\":1,\"totalAllocBytes\":2,\"heapAllocBytes\":3,\"heapObjects\":4}}\n"
        );
    }
}
