//! Turns each operation into a transform with its options.

use std::sync::LazyLock;

use regex::Regex;
use thalweg_config::{ByteSize, Node, nearest};

use super::environment::SourceType;
use super::gotext;
use super::operation::{Cleanup, Operation, Target};
use super::tables;
use super::values::{Got, Values};
use crate::made::{self, Made};
use crate::store_url;

/// A finished transform.
pub(super) struct Transform {
    pub(super) component: &'static str,
    pub(super) node: Node,
}

/// Returns the transform of an operation. Returns `None` if the operation reads files or is wrong; the report
/// then has the mistake.
pub(super) fn transform(operation: &Operation<'_>, values: &mut Values<'_>) -> Option<Transform> {
    let mut options = Made::new(operation.span);
    let component = match operation.kind.operation {
        tables::Operation::FileSizeValidate => size(operation, values, &mut options),
        tables::Operation::FileTypeValidate => mime(operation, values, &mut options),
        tables::Operation::FileTimeValidate => time(operation, values, &mut options),
        tables::Operation::ExiftoolMetadataCleanup => metadata(operation, values, &mut options),
        tables::Operation::ImageConvert => image(operation, values, &mut options),
        tables::Operation::CommandExec => command(operation, values, &mut options),
        tables::Operation::FilesystemInputWrite => write(operation, values, &mut options),
        tables::Operation::FilesystemInputRemove => remove(operation, values, &mut options),
        tables::Operation::InputForget => Some("forget"),
        tables::Operation::S3Upload => upload(operation, values, &mut options),
        tables::Operation::FilesystemInputRead
        | tables::Operation::HttpMultipartFormInputRead
        | tables::Operation::HttpOctetStreamInputRead => None,
    };
    idle_cleanup(operation, values);
    let component = component?;
    let mut step = Made::new(operation.span);
    step.put_at(component, operation.span, options.done());
    let target = match operation.target {
        None | Some((Target::WithoutErrors, _)) => None,
        Some((Target::WithErrors, span)) => Some(("with_errors", span)),
        Some((Target::All, span)) => Some(("all", span)),
    };
    if let Some((target, span)) = target {
        step.text("for", target, span);
    }
    Some(Transform { component, node: step.done() })
}

/// Remarks on a `cleanupPolicy` without effect. Only the output of a command can be kept; all other files in
/// between are thalweg's own temporary files.
fn idle_cleanup(operation: &Operation<'_>, values: &mut Values<'_>) {
    let Some((cleanup, span)) = operation.cleanup else { return };
    match (operation.kind.operation, cleanup) {
        (tables::Operation::CommandExec, _) if operation.parameter("outputFileDestination").is_some() => {}
        (tables::Operation::ImageConvert | tables::Operation::ExiftoolMetadataCleanup, Cleanup::Keep) => {
            values.report.remark(span, "Temporary files are always removed.");
        }
        (tables::Operation::ImageConvert | tables::Operation::ExiftoolMetadataCleanup, Cleanup::Remove)
        | (_, Cleanup::Keep) => {}
        (_, Cleanup::Remove) => {
            let message = format!(
                "`cleanupPolicy` has no effect at `{}`, which makes no file that could be removed.",
                operation.kind.name
            );
            values.report.remark(span, message);
        }
    }
}

fn size(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    let given = ["minFileSize", "maxFileSize"].map(|name| operation.parameter(name).is_some());
    let bounds = [("minFileSize", "min_bytes"), ("maxFileSize", "max_bytes")];
    let mut is_wrong = false;
    let mut from = SourceType::Value;
    let mut bytes = [None; 2];
    for (at, ((theirs, ours), is_given)) in bounds.into_iter().zip(given).enumerate() {
        match values.number(operation, theirs) {
            Some(bound) => {
                if bound.from.is_of_request() {
                    from = bound.from;
                }
                match u64::try_from(bound.value) {
                    Ok(0) => {}
                    Ok(size) => {
                        options.text(ours, ByteSize(size).to_string(), bound.span);
                        bytes[at] = Some(size);
                    }
                    // A negative bound is none, but it counts as given.
                    Err(_) => {
                        options.text("min_bytes", "0B", bound.span);
                    }
                }
            }
            None => is_wrong |= is_given,
        }
    }
    if options.is_empty() && !is_wrong {
        let message = "either \"minFileSize\" or \"maxFileSize\" parameter must be set".to_owned();
        values.wrong(from, operation.span, message).help("A bound of 0 means no bound.");
    }
    if let [Some(min), Some(max)] = bytes
        && min > max
    {
        let message = "no file has at least \"minFileSize\" and at most \"maxFileSize\" bytes".to_owned();
        values.wrong(from, operation.span, message).help("Exchange them.");
    }
    (!options.is_empty()).then_some("check_size")
}

fn mime(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    static MIME: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[A-Za-z0-9!#$&^_.+-]+/([A-Za-z0-9!#$&^_.+-]+|\*)$").ok());
    let list = values.list(operation, "allowedMimeTypes")?;
    if list.value.is_empty() {
        let message = "`allowedMimeTypes` is empty, so that no file could pass.".to_owned();
        let help = "Name the types, or leave the operation out: capyfile let every file pass.";
        values.wrong(list.from, list.span, message).help(help);
    }
    let mut types = Vec::new();
    for (mime, span) in &list.value {
        let (bare, parameters) = mime.split_once(';').unwrap_or((mime.as_str(), ""));
        let bare = bare.trim();
        if !MIME.as_ref().is_some_and(|pattern| pattern.is_match(bare)) {
            let message = format!("{} is not a MIME type.", list.shown(mime, "allowedMimeTypes"));
            values.wrong(list.from, *span, message).help("Write it like `image/jpeg`.");
            continue;
        }
        if bare.ends_with("/*") {
            let shown = list.shown(bare, "allowedMimeTypes");
            let message =
                format!("{shown} matches all types that begin like this; capyfile rejected every file.");
            values.report.remark(*span, message);
        }
        if !parameters.is_empty() {
            values.report.remark(
                *span,
                match list.from {
                    SourceType::Value => {
                        format!("`{}` has no effect: types are compared without it.", parameters.trim())
                    }
                    _ => "Parameters of types mean nothing: types are compared without them.".to_owned(),
                },
            );
        }
        types.push(made::text(bare, *span));
    }
    options.put("allow", made::list(types, list.span));
    Some("check_type")
}

fn time(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let date = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])";
        Regex::new(&format!(
            r"^{date}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.,][0-9]+)?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$"
        ))
        .ok()
    });
    const BOUNDS: [(&str, &str); 6] = [
        ("minAtime", "min_accessed"),
        ("maxAtime", "max_accessed"),
        ("minMtime", "min_modified"),
        ("maxMtime", "max_modified"),
        ("minCtime", "min_changed"),
        ("maxCtime", "max_changed"),
    ];
    for (theirs, ours) in BOUNDS {
        let Some(time) = values.text(operation, theirs) else { continue };
        if TIME.as_ref().is_some_and(|pattern| pattern.is_match(&time.value)) {
            options.text(ours, time.value, time.span);
        } else {
            let message = format!("`{theirs}` of `{}` is not a time.", operation.kind.name);
            let help = "Write it like `2024-02-14T00:00:00Z` or `2024-02-14T00:00:00+01:00`.";
            values.wrong(time.from, time.span, message).help(help);
        }
    }
    if operation.parameters().next().is_none() {
        let names: Vec<String> = BOUNDS.iter().map(|(name, _)| format!("`{name}`")).collect();
        let message = "at least one of the time parameters must be set";
        values.report.mistake(operation.span, message).help(format!("There are {}.", names.join(", ")));
    }
    Some("check_time")
}

fn metadata(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    options.text("with", "auto", operation.span);
    if let Some(in_place) = values.flag(operation, "overrideOriginalFile").filter(|in_place| in_place.value) {
        options.flag("in_place", true, in_place.span);
    }
    Some("strip_metadata")
}

fn image(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    const TYPES: [&str; 6] =
        ["image/jpeg", "image/png", "image/gif", "image/webp", "image/heic", "image/heif"];
    if let Some(to) = values.some_text(operation, "toMimeType") {
        if TYPES.contains(&to.value.as_str()) {
            options.text("to", to.value, to.span);
        } else {
            let message = match to.value.as_str() {
                "application/pdf" => {
                    "Images cannot be converted to PDF: in capyfile this failed for every file.".to_owned()
                }
                other => {
                    let shown = to.shown(other, "toMimeType");
                    format!("{shown} is not a type that images can be converted to.")
                }
            };
            let list: Vec<String> = TYPES.iter().map(|known| format!("`{known}`")).collect();
            let help = match nearest(&to.value, TYPES).filter(|_| to.from == SourceType::Value) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("There are {}.", list.join(", ")),
            };
            values.wrong(to.from, to.span, message).help(help);
            if to.from.is_of_request() && to.value != "application/pdf" {
                let message = format!("image conversion to \"{}\" MIME type is not supported", to.value);
                values.cannot_work.get_or_insert((operation.kind.operation, message));
            }
        }
    }
    let quality = values.text(operation, "quality");
    let span = quality.as_ref().map_or(operation.span, |quality| quality.span);
    options.number("quality", quality.map_or(75, |quality| percent(&quality, values)), span);
    options.text("same", "keep", operation.span);
    Some("convert_image")
}

fn percent(quality: &Got<String>, values: &mut Values<'_>) -> i64 {
    match quality.value.as_str() {
        "best" => 100,
        "high" => 75,
        "medium" => 50,
        "low" => 25,
        other => {
            let number = other.parse().ok().filter(|number| (1..=100).contains(number));
            let shown = quality.shown(other, "quality");
            let message = match number {
                Some(number) => format!(
                    "The quality is {number} of 100; capyfile knows `best`, `high`, `medium` and `low` only."
                ),
                None => format!(
                    "{shown} is not a quality, so `high` is used; there are `best`, `high`, `medium` and `low`."
                ),
            };
            values.report.remark(quality.span, message);
            number.unwrap_or(75)
        }
    }
}

fn command(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    if let Some(command) = values.some_text(operation, "commandName") {
        options.put("command", template(&command.value, "commandName", &command, values));
    }
    if let Some(list) = values.list(operation, "commandArgs").filter(|list| !list.value.is_empty()) {
        let args = list.value.iter().map(|(text, span)| {
            let place = Got { value: (), span: *span, from: list.from };
            if !list.from.is_of_request() && list.from != SourceType::Value {
                // It may be a password, and a command may print it.
                thalweg_redact::keep(text, None);
            }
            template(text, "commandArgs", &place, values)
        });
        let args = args.collect();
        options.put("args", made::list(args, list.span));
    }
    if let Some(output) =
        values.text(operation, "outputFileDestination").filter(|path| !path.value.is_empty())
    {
        options.put("output", template(&output.value, "outputFileDestination", &output, values));
        let (cleanup, span) = match operation.cleanup {
            Some((Cleanup::Remove, span)) => ("remove", span),
            Some((Cleanup::Keep, span)) => ("keep", span),
            None => ("keep", operation.span),
        };
        options.text("output_cleanup", cleanup, span);
    }
    if let Some(parallel) =
        values.flag(operation, "allowParallelExecution").filter(|parallel| !parallel.value)
    {
        options.flag("one_at_a_time", true, parallel.span);
    }
    Some("exec")
}

fn template<T>(text: &str, name: &str, place: &Got<T>, values: &mut Values<'_>) -> Node {
    let translated = gotext::translated(text).unwrap_or_else(|wrong| {
        let (message, help) = if place.is_shown() {
            (wrong.message, wrong.help)
        } else {
            let shown = place.shown(text, name);
            (format!("{shown} is not a template with variables only."), gotext::variables())
        };
        values.wrong(place.from, place.span, message).help(help);
        String::new()
    });
    made::text(translated, place.span)
}

fn write(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    if let Some(path) = values.some_text(operation, "destination") {
        options.text("path", path.value, path.span);
    }
    let original = values.flag(operation, "useOriginalFilename");
    let span = original.as_ref().map_or(operation.span, |original| original.span);
    let name = match original.is_some_and(|original| original.value) {
        true => "{original_stem}{retyped_suffix}",
        false => "{id}{mime_suffix}",
    };
    options.text("name", name, span).text("existing", "replace", operation.span);
    Some("write")
}

fn upload(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    let mut text = |name| values.some_text(operation, name).map(|text| text.value);
    let (key, secret, endpoint) = (text("accessKeyId"), text("secretAccessKey"), text("endpoint"));
    let (region, bucket) = (text("region"), text("bucket"));
    let token = values.text(operation, "sessionToken").map(|token| token.value);
    let (key, secret, endpoint, region, bucket) = (key?, secret?, endpoint?, region?, bucket?);
    let before_host =
        endpoint.contains("{bucket}.") || endpoint.trim_end_matches('/').ends_with("amazonaws.com");
    let endpoint = endpoint.replace("{bucket}.", "").replace("{bucket}", "").replace("{region}", &region);
    let endpoint = match endpoint.contains("://") {
        true => endpoint,
        false => format!("https://{endpoint}"),
    };
    // A store may repeat it in the text of an error.
    thalweg_redact::keep_address(&endpoint);
    let url = store_url::s3(
        &bucket,
        "",
        &[
            ("region", &region),
            ("endpoint", &endpoint),
            ("access_key_id", &key),
            ("secret_access_key", &secret),
            ("session_token", &token.unwrap_or_default()),
            ("enable_virtual_host_style", if before_host { "true" } else { "" }),
        ],
    );
    options.text("url", url, operation.span).text("name", "{id}{mime_suffix}", operation.span);
    // A client waits for the answer, and operations for files with errors for the file.
    options.text("on_failure", "reject", operation.span);
    Some("upload")
}

fn remove(operation: &Operation<'_>, values: &mut Values<'_>, options: &mut Made) -> Option<&'static str> {
    if let Some(original) = values.flag(operation, "removeOriginalFile").filter(|original| original.value) {
        options.flag("original", true, original.span);
    }
    Some("remove")
}
