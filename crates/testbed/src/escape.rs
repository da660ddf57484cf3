//! Escapes and unescapes the paths of URLs, as far as is necessary.

/// Escapes a text for the path of a URL.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

/// Unescapes the path of a URL; `None` if it is not UTF-8.
pub(crate) fn meant(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_is_meant_again() {
        for text in ["a/b.c", "a b", "50%", "ä?&#+", ""] {
            assert_eq!(meant(&escaped(text)).as_deref(), Some(text));
        }
        assert_eq!(escaped("a b?"), "a%20b%3F");
        assert_eq!(meant("%4"), None);
        assert_eq!(meant("%ff"), None);
    }
}
