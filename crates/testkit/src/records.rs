//! Numbered records, from which it can be seen what is missing, torn, there twice or out of order.
//!
//! The whole text of a record follows from its number, so that a record that was cut, mixed with another or
//! changed is recognised as torn. A checksum in each record was rejected: it says that something is wrong,
//! but not what should have been there.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `{"n":42,"group":"g2","text":"xxxx"}`.
    Json,
    /// `42,g2,xxxx`. A file has the header `n,group,text`.
    Csv,
    /// An RFC 5424 message of syslog whose text is that of [`Json`](Self::Json).
    Syslog,
}

/// The numbers of a test's records, from 0, and their form.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    /// The number of records.
    pub count: u64,
    /// The bytes of padding in each record. Every record has a little more or less.
    pub padding: usize,
}

/// The first line of a file of [`Form::Csv`].
pub const CSV_HEADER: &str = "n,group,text";

const SYSLOG_HEADER: &str = "<14>1 2024-03-05T10:20:30Z host app - - - ";

impl Records {
    /// Returns `count` records of about 60 bytes.
    pub fn new(count: u64) -> Self {
        Self { count, padding: 40 }
    }

    /// Returns `count` records of about 200 KB: more than is read or written at once.
    pub fn large(count: u64) -> Self {
        Self { count, padding: 200_000 }
    }

    /// Returns the text of a record, without a line feed.
    pub fn text(self, number: u64, form: Form) -> String {
        let (group, padding) = self.values(number);
        match form {
            Form::Json => format!(r#"{{"n":{number},"group":"{group}","text":"{padding}"}}"#),
            Form::Csv => format!("{number},{group},{padding}"),
            Form::Syslog => {
                format!("{SYSLOG_HEADER}{}", self.text(number, Form::Json))
            }
        }
    }

    /// Returns the number of a record. None if it is torn.
    pub fn number(self, line: &str, form: Form) -> Option<u64> {
        let digits = match form {
            Form::Json => line.strip_prefix(r#"{"n":"#)?.split(',').next()?,
            Form::Csv => line.split(',').next()?,
            Form::Syslog => line.strip_prefix(SYSLOG_HEADER)?.strip_prefix(r#"{"n":"#)?.split(',').next()?,
        };
        let number = digits.parse().ok()?;
        (number < self.count && self.text(number, form) == line).then_some(number)
    }

    /// Writes the records of a range of numbers to a new file, one a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(self, path: &Path, numbers: std::ops::Range<u64>, form: Form) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(path)?);
        if form == Form::Csv {
            writeln!(file, "{CSV_HEADER}")?;
        }
        for number in numbers {
            writeln!(file, "{}", self.text(number, form))?;
        }
        file.flush()
    }

    /// Returns the group and the padding of a record.
    pub fn values(self, number: u64) -> (String, String) {
        (format!("g{}", number % 4), self.padding(number))
    }

    /// Records differ in length, so that a cut at a wrong place is seen.
    fn padding(self, number: u64) -> String {
        let length = self.padding / 2 + (number as usize * 7) % (self.padding + 1);
        let mut text = String::with_capacity(length + 8);
        while text.len() < length {
            let _ = write!(text, "{:x}.", number.wrapping_mul(0x9E37_79B9) % 0xFFFF);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_recognised_in_every_form_and_a_part_of_it_is_torn() {
        let records = Records::new(50);
        for form in [Form::Json, Form::Csv, Form::Syslog] {
            for number in 0..50 {
                let text = records.text(number, form);
                assert_eq!(records.number(&text, form), Some(number), "{text}");
                assert_eq!(records.number(&text[..text.len() - 1], form), None);
                assert_eq!(records.number(&format!("{text}{text}"), form), None);
            }
        }
        assert_eq!(Records::new(49).number(&records.text(49, Form::Json), Form::Json), None);
    }
}
