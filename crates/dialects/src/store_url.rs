//! Builds the URLs of stores, which have the options of a store as a query.

/// Returns the URL of a folder in a bucket. `folder` is empty, or has a slash at its end. Options without a
/// value are left out.
pub(crate) fn s3(bucket: &str, folder: &str, options: &[(&str, &str)]) -> String {
    let mut url = format!("s3://{bucket}/{}", escaped(folder));
    let mut mark = '?';
    for (name, value) in options.iter().filter(|(_, value)| !value.is_empty()) {
        url += &format!("{mark}{name}={}", escaped(value));
        mark = '&';
    }
    // A store may repeat them in the text of an error.
    thalweg_redact::keep_address(&url);
    url
}

/// Escapes a text for a URL. Slashes and colons stay.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' => {
                escaped.push(char::from(byte));
            }
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_a_value_are_left_out_and_the_others_are_escaped() {
        assert_eq!(s3("b", "", &[("region", ""), ("endpoint", "")]), "s3://b/");
        assert_eq!(
            s3("b", "a {x}/", &[("region", "eu"), ("session_token", ""), ("endpoint", "http://h:1/?a&b")]),
            "s3://b/a%20%7Bx%7D/?region=eu&endpoint=http://h:1/%3Fa%26b"
        );
    }
}
