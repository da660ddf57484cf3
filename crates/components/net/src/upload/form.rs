//! Names and values in a URL, or in the body of a form without files.

/// Parses `a=b&c=d%20e+f`.
pub fn pairs(text: &[u8]) -> Vec<(String, String)> {
    let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(equals);
        let part = |text: &[u8]| {
            let text: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
            String::from_utf8_lossy(&percent_decoded(&text)).into_owned()
        };
        (part(name), part(value.get(1..).unwrap_or_default()))
    });
    pairs.collect()
}

/// Decodes percent-encoding such as `%20`.
pub fn percent_decoded(text: &[u8]) -> Vec<u8> {
    decoded(text, |_| true)
}

/// Decodes the percent-encoded bytes for which `is_meant` returns true.
pub(super) fn decoded(text: &[u8], is_meant: impl Fn(u8) -> bool) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if let (b'%', [high, low, after @ ..]) = (byte, after)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
            && is_meant(high << 4 | low)
        {
            found.push(high << 4 | low);
            rest = after;
        } else {
            found.push(byte);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_as_browsers_write_them() {
        let expected = [("a", "b c"), ("d", ""), ("e&", "ü=%"), ("f", ""), ("", "g")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs(b"a=b+c&d&&e%26=%c3%bc=%&f=&=g"), expected);
        assert_eq!(pairs(b""), []);
    }
}
