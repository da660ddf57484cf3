//! The line of a request: `GET /index.html HTTP/1.1`.

use thalweg_codec::columns::Columns;

use crate::text_parser::push;

/// Divides the line of a request into fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// The first of the columns of method, URI and protocol, if each is one of this line.
    columns: [Option<usize>; 3],
}

impl Request {
    /// The fields of the parts.
    pub(crate) const FIELDS: [&str; 3] = ["request_method", "request_uri", "server_protocol"];

    /// Finds the columns of the parts from column `first` on. The columns before it are variables of a
    /// format: a part that a format has as a variable is not taken from the line.
    pub(crate) fn new(columns: &Columns, first: usize) -> Self {
        let number = |name: &str| (first..columns.len()).find(|&column| columns.name(column) == Some(name));
        Self { columns: Self::FIELDS.map(number) }
    }

    /// Appends the line and its parts. A line of another form, such as that of a TLS handshake, has no parts.
    #[inline]
    pub(crate) fn push(&self, columns: &mut Columns, column: usize, line: &str) -> Result<(), String> {
        push(columns, column, line)?;
        let Some(parts) = divided(line) else { return Ok(()) };
        for (column, part) in self.columns.into_iter().zip(parts) {
            if let (Some(column), Some(part)) = (column, part) {
                push(columns, column, part)?;
            }
        }
        Ok(())
    }
}

/// Returns method, URI and protocol. HTTP/0.9 has no protocol.
fn divided(line: &str) -> Option<[Option<&str>; 3]> {
    let (method, rest) = line.split_once(' ')?;
    let is_method = |byte: u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    if method.len() < 2 || rest.is_empty() || !method.bytes().all(is_method) {
        return None;
    }
    let (uri, protocol) = match rest.rsplit_once(' ') {
        Some((uri, protocol)) if protocol.starts_with("HTTP/") => (uri, Some(protocol)),
        _ => (rest, None),
    };
    Some([Some(method), Some(uri), protocol])
}

#[cfg(test)]
mod tests {
    use super::divided;

    #[test]
    fn only_a_request_has_parts() {
        let parts = |line| divided(line).map(|parts| parts.map(Option::unwrap_or_default));
        assert_eq!(parts("GET /a b HTTP/2.0"), Some(["GET", "/a b", "HTTP/2.0"]));
        assert_eq!(parts("GET /"), Some(["GET", "/", ""]));
        assert_eq!(parts("M-SEARCH * HTTP/1.1"), Some(["M-SEARCH", "*", "HTTP/1.1"]));
        for line in ["", "-", "GET", "GET ", "- - - ", "\u{16}\u{3} x y", "get / HTTP/1.1"] {
            assert_eq!(parts(line), None, "{line}");
        }
    }
}
