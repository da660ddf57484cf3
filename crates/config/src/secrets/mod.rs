//! Registers the secrets of a document, so that no text that is shown or stored contains them.
//!
//! A value that is short or an ordinary word cannot be searched for in all texts. It is [hidden](Hidden) at
//! its place in the document instead.

mod hidden;
mod text;

use thalweg_redact::{is_named_like_a_secret, keep, keep_address};

pub(crate) use hidden::{Hidden, without_quoted};

use crate::{Key, Node, Value};

/// Options with the server that a component connects to.
const SERVERS: [&str; 4] = ["url", "server", "servers", "brokers"];

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
            let (has_user, has_server) = (has(entries, &["user"]), names_a_server(entries));
            for (key, value) in entries {
                let secret = value.text().filter(|_| is_named_like_a_secret(&key.name));
                match (secret, &value.value) {
                    (None, _) | (_, Value::Bool(_)) => {}
                    (Some(secret), _) if has_user && !secret.contains("${") => keep(secret, None),
                    (Some(secret), Value::String(_)) => keep_option(secret),
                    // The number of something else may be equal.
                    _ => {}
                }
                match key.name.as_str() {
                    "auth" if has_server => keep_credentials(value),
                    "headers" if has_server => keep_headers(value),
                    "brokers" | "server" | "servers" => keep_users(value),
                    _ => {}
                }
                keep_written(value);
            }
        }
        Value::String(text) if text.contains("://") => keep_address(text),
        _ => {}
    }
}

/// True if a mapping has one of these keys.
fn has(entries: &[(Key, Node)], names: &[&str]) -> bool {
    entries.iter().any(|(key, _)| names.contains(&key.name.as_str()))
}

/// True if a mapping says which server a component connects to. A component may be called `server` too.
fn names_a_server(entries: &[(Key, Node)]) -> bool {
    let is_server = |(key, value): &(Key, Node)| {
        SERVERS.contains(&key.name.as_str()) && !matches!(value.value, Value::Mapping(_))
    };
    entries.iter().any(is_server)
}

/// True if the value of a header with this name is a secret.
fn is_secret_header(name: &str) -> bool {
    let mut words = name.trim().split(['-', '_']);
    is_named_like_a_secret(name)
        || words.any(|word| ["auth", "key"].iter().any(|secret| word.eq_ignore_ascii_case(secret)))
}

/// True for the options of `auth` that are no secrets.
fn is_plain(name: &str) -> bool {
    ["user", "mechanism"].contains(&name) || name.ends_with("file") || name.ends_with("path")
}

/// Registers the values of `auth`, also of options that it does not have: the name may be misspelt.
fn keep_credentials(node: &Node) {
    match &node.value {
        Value::String(text) => {
            keep_option(text);
            // The password of `user:password`, which a server may repeat alone.
            if let Some((_, password)) = text.split_once(':') {
                keep_option(password);
            }
        }
        Value::Sequence(items) => items.iter().for_each(keep_credentials),
        Value::Mapping(entries) => {
            entries
                .iter()
                .filter(|(key, _)| !is_plain(&key.name))
                .for_each(|(_, value)| keep_credentials(value));
        }
        _ => {}
    }
}

/// Registers the secrets of headers, also of those that are written as lines.
fn keep_headers(node: &Node) {
    let named = node.entries().iter().filter(|(key, _)| is_secret_header(&key.name));
    named.filter_map(|(_, value)| value.as_str()).for_each(keep_option);
    for line in node.items().iter().chain([node]).filter_map(Node::as_str) {
        if let Some((_, value)) = line.split_once(':').filter(|(name, _)| is_secret_header(name)) {
            keep_option(value);
        }
    }
}

/// Registers the users and passwords of hosts that are written as those of an address.
fn keep_users(node: &Node) {
    for text in node.items().iter().chain([node]).filter_map(Node::as_str) {
        text.split(',').filter(|host| !host.contains("://")).for_each(|host| {
            keep_address(&format!("host://{}", host.trim()));
        });
    }
}

/// Registers the value of an option that is named like a secret and has no `user` beside it. A field or an
/// expression may have such a name too, so its value must resemble a secret.
fn keep_option(value: &str) {
    // `Bearer TOKEN` of a header.
    let secret = value.rsplit(' ').next().unwrap_or_default();
    if resembles_a_secret(value) {
        keep(secret, None);
    }
}

/// False for the name of a field, a variable, and a call in an expression.
fn resembles_a_secret(value: &str) -> bool {
    let last = value.rsplit(' ').next().unwrap_or_default();
    let is_name = last.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    !is_name && !value.contains("${") && !value.contains('(')
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

    #[test]
    fn secrets_in_the_wrong_place_are_secrets() {
        let text = "
a: { url: h, auth: 'Wrong-1a' }
b: { url: h, auth: { baerer: 'Wrong-2b', mechanism: scram_sha_256, user: User-One1, key_file: Key-File1 } }
c: { url: h, auth: { user: u, password: ['Wrong-3c'] } }
d: { url: h, auth: { bearer: { t: 'Wrong-4d' } } }
e: { url: h, headers: ['Authorization: Bearer Wrong-5e', 'X-Name: Plain-5e'] }
f: { brokers: 'me:Wrong-6f@h:1,other:1', servers: ['me:Wrong-7g@h:1'] }
g: { server: h, auth: { user: u, pass: 'Wrong-8i' } }
h: { server: h, auth: [u, 'Wrong-9j'] }
i: { server: h, auth: 'u:Wrong-10k' }
j: { server: 'u:Wrong-11l@h' }
k: { url: h, headers: { X-Auth: 'Wrong-12m', X-Key: 'Wrong-13n', Accept: Plain-14o } }
sinks: { server: { stdout: {} }, auth: { file: { path: Plain-8h, codec: Plain-9h } } }
";
        Document::parse("c.yaml", text).map_err(|mistakes| mistakes.render(false)).unwrap();
        let secrets = "Wrong-1a Wrong-2b Wrong-3c Wrong-4d Wrong-5e Wrong-6f Wrong-7g";
        assert_eq!(redacted(secrets), "… … … … … … …");
        let secrets = "Wrong-8i Wrong-9j Wrong-10k Wrong-11l Wrong-12m Wrong-13n";
        assert_eq!(redacted(secrets), "… … … … … …");
        let plain = "scram_sha_256 User-One1 Key-File1 Plain-5e Plain-8h Plain-9h Plain-14o other:1";
        assert_eq!(redacted(plain), plain);
    }
}
