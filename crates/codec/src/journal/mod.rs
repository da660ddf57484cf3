//! The export format of systemd's journal, which `journalctl --output=export` writes.
//!
//! An entry is a list of fields, and ends with an empty line. A field is `NAME=value` on a line, or, for a
//! value with line feeds or other control characters: the name on a line, the length of the value as eight
//! bytes, lowest first, the value, and a line feed. [`Entries`] finds the entries in a stream, and [`fields`]
//! the fields of an entry.
//!
//! The format is described at <https://systemd.io/JOURNAL_EXPORT_FORMATS/>.

mod entries;

use std::ops::Range;

use memchr::memchr;

pub use entries::Entries;

/// The size of the length of a value, in bytes.
const LENGTH: usize = 8;

/// Finds the fields of an entry, and passes the ranges of the name and of the value of each to `found`. A
/// name is UTF-8, and may occur more than once. The last line feed may be missing.
///
/// # Errors
/// The reason if there is something else than fields. Some fields may have been found before.
pub fn fields(entry: &[u8], mut found: impl FnMut(Range<usize>, Range<usize>)) -> Result<(), String> {
    let mut at = 0;
    while at < entry.len() {
        let end = memchr(b'\n', entry.get(at..).unwrap_or_default()).map_or(entry.len(), |end| at + end);
        let line = entry.get(at..end).unwrap_or_default();
        let (name, value) = match memchr(b'=', line) {
            Some(equals) => (at..at + equals, at + equals + 1..end),
            None => {
                let cut_off = || format!("the value of the field at byte {at} is cut off, or has no `=`");
                (at..end, sized(entry, end + 1).ok_or_else(cut_off)?)
            }
        };
        let text = entry.get(name.clone()).and_then(|name| std::str::from_utf8(name).ok());
        if text.is_none_or(str::is_empty) {
            return Err(format!("the field at byte {at} has no name"));
        }
        at = value.end + 1;
        found(name, value);
    }
    Ok(())
}

/// Returns the range of the value whose length is at byte `at`.
fn sized(entry: &[u8], at: usize) -> Option<Range<usize>> {
    let (length, rest) = entry.get(at..)?.split_first_chunk::<LENGTH>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= rest.len())?;
    let start = at + LENGTH;
    matches!(rest.get(length), None | Some(b'\n')).then_some(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(entry: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut all = Vec::new();
        fields(entry, |name, value| {
            let name = String::from_utf8(entry[name].to_vec()).unwrap();
            all.push((name, entry[value].to_vec()));
        })?;
        Ok(all)
    }

    /// The example of the specification, shortened.
    #[test]
    fn a_value_is_on_the_line_of_its_name_or_has_a_length() {
        let entry = b"__CURSOR=s=739ad463348b4ceca5a9e69c95a3c93f;i=4ece7\n_TRANSPORT=journal\nMESSAGE\n\x07\0\0\0\0\0\0\0foo\nbar\nCODE_FUNC=f=g\nEMPTY=\n";
        let field = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        let all = [
            field("__CURSOR", b"s=739ad463348b4ceca5a9e69c95a3c93f;i=4ece7"),
            field("_TRANSPORT", b"journal"),
            field("MESSAGE", b"foo\nbar"),
            field("CODE_FUNC", b"f=g"),
            field("EMPTY", b""),
        ];
        assert_eq!(found(entry).unwrap(), all);
        // Without the last line feed.
        assert_eq!(found(&entry[..entry.len() - 1]).unwrap(), all);
        assert_eq!(found(b"A\n\x02\0\0\0\0\0\0\0\xff\n").unwrap(), [field("A", b"\xff\n")]);
        assert_eq!(found(b"").unwrap(), []);
    }

    #[test]
    fn what_is_no_field_says_where() {
        for (entry, reason) in [
            (&b"A=1\nB"[..], "the value of the field at byte 4 is cut off, or has no `=`"),
            (
                b"A=1\nB\n\x05\0\0\0\0\0\0\0abc\n",
                "the value of the field at byte 4 is cut off, or has no `=`",
            ),
            (b"B\n\x02\0\0\0\0\0\0\0abc\n", "the value of the field at byte 0 is cut off, or has no `=`"),
            (
                b"B\n\xff\xff\xff\xff\xff\xff\xff\xffabc\n",
                "the value of the field at byte 0 is cut off, or has no `=`",
            ),
            (b"=1\n", "the field at byte 0 has no name"),
            (b"\xff=1\n", "the field at byte 0 has no name"),
        ] {
            assert_eq!(found(entry), Err(reason.to_owned()));
        }
    }
}
