//! Comma-separated values: the common part of the transforms of messages and of files.

mod dialect;
mod options;
mod records;
mod skeleton;

use hashbrown::HashMap;

pub use dialect::Dialect;
pub use options::CsvOptions;
pub use records::{Fault, Record, RecordPosition, Records};

use dialect::text;

/// Returns the column names in a header of at most `most` columns. A repeated name gets a number; an empty
/// name becomes `column_` and its number.
///
/// # Errors
/// If the header is not UTF-8, has a wrong quote, or has more than `most` columns.
pub fn names(
    dialect: Dialect,
    value: &[u8],
    most: usize,
    scratch: &mut String,
) -> Result<Vec<String>, String> {
    let record = text(value)?;
    let record = record.strip_prefix('\u{feff}').unwrap_or(record);
    let mut names: Vec<String> = Vec::new();
    let mut taken: HashMap<String, usize> = HashMap::new();
    let found = dialect.split(record, scratch, |column, name| {
        if column >= most {
            return;
        }
        let name = if name.is_empty() { format!("column_{}", column + 1) } else { name.to_owned() };
        let mut free = name.clone();
        while let Some(times) = taken.get_mut(&free) {
            // Numbering continues from the last number, because all columns may have the same name.
            *times += 1;
            let number = *times;
            free = format!("{name}_{number}");
        }
        taken.insert(free.clone(), 1);
        names.push(free);
    })?;
    if found > most {
        return Err(format!("it has {found} columns, and `max_columns` is {most}"));
    }
    Ok(names)
}
