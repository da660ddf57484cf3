//! The columns that `--where`, `--set` and `--keep` name, compared with those of the first object.
//!
//! In a pipeline, a column that does not exist is NULL: messages differ. The columns of a table of CSV are
//! known, so that a misspelled one is a mistake instead of a copy without rows.

use std::pin::pin;

use thalweg_config::nearest;
use thalweg_expression::Expression;
use thalweg_files::sources::objects::ObjectsSource;
use thalweg_files::transforms::csv::Csv;
use thalweg_record::INTRINSIC;
use thalweg_store::Object;

use super::rows::{Parse, Rows};
use crate::error::LoadError;

/// The number of columns in a mistake.
const SHOWN: usize = 30;

/// Compares the columns that the options name with those of the first object of the source. If the source has
/// several objects, returns the mistake as a warning: the others may have the column.
///
/// # Errors
/// The first column that does not exist.
pub(super) async fn check(source: &ObjectsSource, rows: &Rows) -> Result<Option<String>, LoadError> {
    if rows.parse != Some(Parse::Csv)
        || rows.condition.is_none() && rows.set.is_empty() && rows.keep.is_empty()
    {
        return Ok(None);
    }
    let mut first = None;
    let mut each = |_: &str, object: &Object| {
        first = Some(object.clone());
        false
    };
    pin!(source.look(&mut each)).await?;
    let Some(first) = first else { return Ok(None) };
    let columns = match rows.columns.is_empty() {
        true => csv(rows).columns_of(&first).await,
        false => Some(rows.columns.clone()),
    };
    let mistake = columns.and_then(|columns| mistake(rows, columns, &first.name()));
    match mistake {
        Some(mistake) if !source.is_many().unwrap_or(false) => Err(LoadError::Options(mistake)),
        mistake => Ok(mistake),
    }
}

fn csv(rows: &Rows) -> Csv {
    let mut csv = Csv::default();
    if let Some(delimiter) = &rows.delimiter {
        csv = csv.with_delimiter(delimiter.clone());
    }
    match &rows.charset {
        Some(charset) => csv.with_charset(charset),
        None => csv,
    }
}

/// Returns the mistake in the options for a table with these columns.
fn mistake(rows: &Rows, columns: Vec<String>, table: &str) -> Option<String> {
    let mut known = columns.clone();
    let unknown = |known: &[String], option: &str, name: &str| {
        let near = nearest(name, known.iter().map(String::as_str));
        let near = near.map_or(".".to_owned(), |near| format!("; did you mean `{near}`?"));
        let shown: Vec<String> = columns.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let more = if columns.len() > SHOWN { " and others" } else { "" };
        let shown = shown.join(", ");
        format!("`{option}`: `{name}` is not a column of `{table}`{near} Its columns are {shown}{more}")
    };
    let in_text = |known: &[String], option: &str, sql: &str| {
        let expression = Expression::parse(sql).ok()?;
        let name = expression.columns().iter().find(|name| !is_known(known, name))?;
        Some(unknown(known, option, name))
    };
    if let Some(mistake) = rows.condition.as_ref().and_then(|sql| in_text(&known, "--where", sql)) {
        return Some(mistake);
    }
    for (name, sql) in &rows.set {
        if let Some(mistake) = in_text(&known, "--set", sql) {
            return Some(mistake);
        }
        known.push(name.clone());
    }
    let kept = rows.keep.iter().find(|name| !name.contains('*') && !known.contains(name))?;
    Some(unknown(&known, "--keep", kept))
}

/// True if a name in an expression is a column, a part of the JSON in one, or of the metadata.
fn is_known(columns: &[String], name: &str) -> bool {
    let is_column = |column: &String| {
        name.strip_prefix(column.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    INTRINSIC.contains(&name) || columns.iter().any(is_column)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_column_that_does_not_exist_is_named_with_those_that_do() {
        let found = |options: serde_json::Value| {
            let rows: Rows = serde_json::from_value(options).unwrap();
            mistake(&rows, ["temp_max", "city", "j"].map(str::to_owned).to_vec(), "in.csv")
        };
        for right in [
            json!({ "where": "temp_max > 30 AND meta.path LIKE '%x' AND j.a.b = 1", "keep": ["city", "t*"] }),
            json!({ "set": [["kib", "temp_max / 2"], ["b", "kib + 1"]], "keep": ["kib", "b"] }),
            json!({ "where": "payload LIKE '%a%'" }),
        ] {
            assert_eq!(found(right.clone()), None, "{right}");
        }
        let columns = "Its columns are `temp_max`, `city`, `j`";
        assert_eq!(
            found(json!({ "where": "temp_mx > 30" })).unwrap(),
            format!("`--where`: `temp_mx` is not a column of `in.csv`; did you mean `temp_max`? {columns}")
        );
        assert_eq!(
            found(json!({ "set": [["a", "unlike + 1"]] })).unwrap(),
            format!("`--set`: `unlike` is not a column of `in.csv`. {columns}")
        );
        assert_eq!(
            found(json!({ "keep": ["city", "citty"] })).unwrap(),
            format!("`--keep`: `citty` is not a column of `in.csv`; did you mean `city`? {columns}")
        );
    }
}
