//! Tables as text: CSV and TSV, by the rules of Go's reader of CSV, lenient about quotes.
//!
//! A table has at least two lines, all with the same number of fields, which is more than one. Empty lines
//! and those that begin with `#` do not count, and spaces before a field are skipped, tabs among them.

/// True if the text is a table; `cut` is true if the file continues after it.
pub(super) fn is_table(text: &[u8], separator: u8, cut: bool) -> bool {
    // The last line may be cut.
    let whole = if cut { memchr::memrchr(b'\n', text).filter(|end| *end > 0) } else { None };
    let mut rest = whole.map_or(text, |end| &text[..end]);
    let (mut lines, mut width) = (0usize, 0usize);
    while !rest.is_empty() {
        let line = line_of(rest);
        if line.starts_with(b"#") || matches!(line, b"\n" | b"\r\n") {
            rest = &rest[line.len()..];
            continue;
        }
        let (fields, after) = record(rest, separator);
        if fields < 2 || lines > 0 && fields != width {
            return false;
        }
        (lines, width, rest) = (lines + 1, fields, after);
    }
    lines > 1
}

/// The first line, with its end.
fn line_of(text: &[u8]) -> &[u8] {
    memchr::memchr(b'\n', text).map_or(text, |end| &text[..=end])
}

/// Returns the number of fields of the first record, and the text after it.
fn record(text: &[u8], separator: u8) -> (usize, &[u8]) {
    let line = line_of(text);
    let (mut line, mut rest) = (line, &text[line.len()..]);
    let mut fields = 1;
    loop {
        let skipped = line.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
        line = &line[skipped..];
        let Some(quoted) = line.strip_prefix(b"\"") else {
            let Some(end) = memchr::memchr(separator, line) else { return (fields, rest) };
            (fields, line) = (fields + 1, &line[end + 1..]);
            continue;
        };
        line = quoted;
        loop {
            match memchr::memchr(b'"', line) {
                Some(quote) => {
                    line = &line[quote + 1..];
                    match line.first() {
                        Some(b'"') => line = &line[1..],
                        Some(byte) if *byte == separator => {
                            (fields, line) = (fields + 1, &line[1..]);
                            break;
                        }
                        _ if matches!(line, b"" | b"\n" | b"\r\n") => return (fields, rest),
                        // A quote within a field.
                        _ => {}
                    }
                }
                // The field continues in the next line.
                None if rest.is_empty() => return (fields, rest),
                None => {
                    line = line_of(rest);
                    rest = &rest[line.len()..];
                }
            }
        }
    }
}
