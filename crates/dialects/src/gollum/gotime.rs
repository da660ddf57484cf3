//! Translates Go's time layouts into strftime's notation.
//!
//! A layout is an example: the second of January 2006, 15:04:05, seven hours west of Greenwich. Elements are
//! recognised by Go's own rules: the longest match wins, and `Jan` in `Janitor` is no month.

/// The purpose of a layout. Some elements can be read but not written, or the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Writes times, in UTC.
    Write,
    /// Reads times.
    Read,
}

/// An element that cannot be expressed, with its offset in the layout.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inexpressible {
    pub(super) element: String,
    pub(super) at: usize,
}

/// Elements whose meaning is independent of their neighbours. Among those with a common start, the longest
/// comes first.
const ELEMENTS: &[(&str, &str)] = &[
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "%Z"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("1", "%-m"),
    ("2006", "%Y"),
    ("2", "%-d"),
    ("__2", "%_j"),
    ("_2006", "_%Y"),
    ("_2", "%e"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("-07:00:00", "%::z"),
    ("-07:00", "%:z"),
    ("-0700", "%z"),
];

/// Elements with a single text for UTC. To read them, `%#z` accepts `Z` and offsets with and without minutes.
const OF_UTC: &[(&str, &str)] = &[
    ("-070000", "+000000"),
    ("-07", "+00"),
    ("Z07:00:00", "Z"),
    ("Z070000", "Z"),
    ("Z07:00", "Z"),
    ("Z0700", "Z"),
    ("Z07", "Z"),
];

/// Layouts that `parse_timestamp` knows by name.
const NAMED: &[(&str, &str)] = &[
    ("2006-01-02T15:04:05Z07:00", "rfc3339"),
    ("2006-01-02T15:04:05.999999999Z07:00", "rfc3339"),
    ("Mon, 02 Jan 2006 15:04:05 -0700", "rfc2822"),
    ("02/Jan/2006:15:04:05 -0700", "clf"),
];

/// Translates a layout.
pub(super) fn strftime(layout: &str, purpose: Purpose) -> Result<String, Inexpressible> {
    if purpose == Purpose::Read
        && let Some((_, name)) = NAMED.iter().find(|(known, _)| *known == layout)
    {
        return Ok((*name).to_owned());
    }
    let mut out = String::new();
    let mut at = 0;
    while let Some(rest) = layout.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some((length, format)) =
            fraction(rest, purpose).map_err(|element| Inexpressible { element, at })?
        {
            out.push_str(&format);
            at += length;
        } else if let Some((element, text)) = OF_UTC.iter().find(|(element, _)| begins(rest, element)) {
            out.push_str(if purpose == Purpose::Read { "%#z" } else { text });
            at += element.len();
        } else if let Some((element, format)) = ELEMENTS.iter().find(|(element, _)| begins(rest, element)) {
            out.push_str(format);
            at += element.len();
        } else {
            let character = rest.chars().next().unwrap_or(' ');
            if character == '%' {
                out.push('%');
            }
            out.push(character);
            at += character.len_utf8();
        }
    }
    Ok(out)
}

fn begins(rest: &str, element: &str) -> bool {
    let Some(after) = rest.strip_prefix(element) else { return false };
    match element {
        "Jan" | "Mon" => !after.starts_with(|next: char| next.is_ascii_lowercase()),
        // `-07` is no match within `-070000`, `-0700` or `-07:00`: the longer elements are in another list.
        "-07" => !["00", ":00"].iter().any(|longer| after.starts_with(longer)),
        "-0700" => !after.starts_with("00"),
        "-07:00" => !after.starts_with(":00"),
        _ => true,
    }
}

/// Translates fractions of a second: a dot or comma with zeros (all digits) or nines (without trailing
/// zeros). If more digits follow, it is no fraction.
fn fraction(rest: &str, purpose: Purpose) -> Result<Option<(usize, String)>, String> {
    let mut characters = rest.chars();
    let Some(separator @ ('.' | ',')) = characters.next() else { return Ok(None) };
    let Some(digit @ ('0' | '9')) = characters.next() else { return Ok(None) };
    let length = 1 + rest[1..].chars().take_while(|next| *next == digit).count();
    if rest[length..].starts_with(|next: char| next.is_ascii_digit()) {
        return Ok(None);
    }
    let element = || rest[..length].to_owned();
    match (purpose, digit, length - 1) {
        (Purpose::Write, '0', digits @ 1..=9) if separator == '.' => {
            Ok(Some((length, format!("%.{digits}f"))))
        }
        (Purpose::Write, '0', digits @ 1..=9) => Ok(Some((length, format!(",%{digits}f")))),
        (Purpose::Write, '9', digits @ 1..=9) => Ok(Some((length, format!("%{separator}-{digits}f")))),
        (Purpose::Read, _, _) if separator == '.' => Ok(Some((length, "%.f".to_owned()))),
        (Purpose::Read, '0', digits @ (3 | 6 | 9)) => Ok(Some((length, format!(",%{digits}f")))),
        _ => Err(element()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(layout: &str) -> String {
        strftime(layout, Purpose::Write).unwrap()
    }

    #[test]
    fn every_element_of_go_is_known() {
        for (layout, format) in ELEMENTS {
            assert_eq!(written(layout), *format, "{layout}");
            assert_eq!(strftime(layout, Purpose::Read).unwrap(), *format, "{layout}");
        }
        for (layout, text) in OF_UTC {
            assert_eq!(written(layout), *text, "{layout}");
            assert_eq!(strftime(layout, Purpose::Read).unwrap(), "%#z");
        }
    }

    #[test]
    fn common_layouts() {
        for (layout, format) in [
            ("2006-01-02 15:04:05 MST | ", "%Y-%m-%d %H:%M:%S %Z | "),
            ("2006-01-02T15:04:05.000 MST", "%Y-%m-%dT%H:%M:%S%.3f %Z"),
            ("Mon Jan _2 15:04:05 2006", "%a %b %e %H:%M:%S %Y"),
            ("Monday, 02-Jan-06 15:04:05 MST", "%A, %d-%b-%y %H:%M:%S %Z"),
            ("2006-01-02T15:04:05Z07:00", "%Y-%m-%dT%H:%M:%SZ"),
            ("3:04PM", "%-I:%M%p"),
            ("2006-01-02_15", "%Y-%m-%d_%H"),
            ("15:04:05,000000", "%H:%M:%S,%6f"),
            ("100% 1", "%-m00%% %-m"),
            ("Janitor Monk", "Janitor Monk"),
            ("20060102150405", "%Y%m%d%H%M%S"),
            ("1.2.06", "%-m.%-d.%y"),
        ] {
            assert_eq!(written(layout), format, "{layout}");
        }
        assert_eq!(strftime("2006-01-02T15:04:05Z07:00", Purpose::Read).unwrap(), "rfc3339");
        assert_eq!(strftime("15:04:05.999", Purpose::Read).unwrap(), "%H:%M:%S%.f");
        assert_eq!(strftime("15h Z0700", Purpose::Read).unwrap(), "%Hh %#z");
        assert_eq!(written("05.00"), "%S%.2f");
        assert_eq!(written("05.999999999Z,9"), "%S%.-9fZ%,-1f");
    }

    #[test]
    fn what_cannot_be_expressed_is_told_with_its_place() {
        let wrong = |layout, purpose| strftime(layout, purpose).unwrap_err();
        assert_eq!(wrong("15:04:05,00", Purpose::Read), Inexpressible { element: ",00".into(), at: 8 });
    }
}
