//! Registers the secrets of a document, so that no text that is shown or stored contains them.

use thalweg_redact::{is_named_like_a_secret, keep, keep_address};

use crate::{Node, Value};

/// Registers the value of a variable, or the content of a file. `shown` takes its place in texts.
pub(crate) fn keep_substituted(value: &str, shown: &str) {
    if value.contains("://") {
        return keep_address(value);
    }
    keep(value, Some(shown));
    // A library may quote one line of a certificate or of a key.
    if value.trim().contains('\n') {
        value.lines().for_each(|line| keep(line, Some(shown)));
    }
}

/// Registers what is written in the document itself: the secrets of addresses, and the values of options that
/// are named like secrets.
pub(crate) fn keep_written(node: &Node) {
    match &node.value {
        Value::Sequence(items) => items.iter().for_each(keep_written),
        Value::Mapping(entries) => {
            for (key, value) in entries {
                if let Some(secret) = value.as_str().filter(|_| is_named_like_a_secret(&key.name)) {
                    keep_option(secret);
                }
                keep_written(value);
            }
        }
        Value::String(text) if text.contains("://") => keep_address(text),
        _ => {}
    }
}

/// Registers the value of an option that is named like a secret. A field or an expression may have such a
/// name too, so its value must resemble a secret.
fn keep_option(value: &str) {
    // `Bearer TOKEN` of a header.
    let secret = value.rsplit(' ').next().unwrap_or_default();
    let is_name = secret.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !is_name && !value.contains("${") && !value.contains('(') {
        keep(secret, None);
    }
}
