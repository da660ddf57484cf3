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
            let has_user = entries.iter().any(|(key, _)| key.name == "user");
            for (key, value) in entries {
                let secret = value.as_str().filter(|_| is_named_like_a_secret(&key.name));
                match secret {
                    Some(secret) if has_user && !secret.contains("${") => keep(secret, None),
                    Some(secret) => keep_option(secret),
                    None => {}
                }
                keep_written(value);
            }
        }
        Value::String(text) if text.contains("://") => keep_address(text),
        _ => {}
    }
}

/// Registers the value of an option that is named like a secret and has no `user` beside it. A field or an
/// expression may have such a name too, so its value must resemble a secret.
fn keep_option(value: &str) {
    // `Bearer TOKEN` of a header.
    let secret = value.rsplit(' ').next().unwrap_or_default();
    let is_name = secret.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if !is_name && !value.contains("${") && !value.contains('(') {
        keep(secret, None);
    }
}

#[cfg(test)]
mod tests {
    use thalweg_redact::redacted;

    use crate::Document;

    #[test]
    fn a_password_beside_a_user_is_a_secret_whatever_it_looks_like() {
        let text =
            "auth: { user: ann, password: correcthorsebattery }\nrename: { password: name_of_a_field }\n";
        Document::parse("c.yaml", text).map_err(|mistakes| mistakes.render(false)).unwrap();
        assert_eq!(redacted("correcthorsebattery name_of_a_field"), "… name_of_a_field");
    }
}
