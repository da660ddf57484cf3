//! Fields of messages as text, to be stored outside of memory and restored.
//!
//! People read a dead letter and machines process it again, perhaps with a later version. So its fields are
//! stored as names, types and values in words. A binary form was rejected.
//!
//! See docs/decisions/021-dead-letters-keep-payload-and-fields.md.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, cast::AsArray};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};
use thalweg_record::{ERROR_COMPONENT, ERROR_REASON};

use crate::Error;

/// A field of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptField {
    /// Its name.
    pub name: String,
    /// Its Arrow type, as Arrow's `Display` writes it.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Its value as text; `None` for NULL.
    pub value: Option<String>,
    /// The metadata of its Arrow field, for example that it is JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Returns the fields of each message, without those that describe its rejection. A field whose type cannot
/// be cast to text is left out.
pub(crate) fn keep(fields: &RecordBatch) -> Vec<Vec<KeptField>> {
    let schema = fields.schema();
    let columns = schema.fields().iter().zip(fields.columns());
    let columns =
        columns.filter(|(field, _)| ![ERROR_REASON, ERROR_COMPONENT].contains(&field.name().as_str()));
    let rows = 0..fields.num_rows();
    let mut kept: Vec<Vec<KeptField>> = rows.map(|_| Vec::with_capacity(fields.num_columns())).collect();
    // One column after the other: a cast reserves kilobytes, and there may be thousands of columns.
    for (field, column) in columns {
        let Ok(column) = cast(column, &DataType::Utf8) else { continue };
        let values = column.as_string::<i32>();
        let data_type = field.data_type().to_string();
        let metadata: BTreeMap<String, String> = field.metadata().clone().into_iter().collect();
        for (kept, value) in kept.iter_mut().zip(values) {
            kept.push(KeptField {
                name: field.name().clone(),
                data_type: data_type.clone(),
                value: value.map(str::to_owned),
                metadata: metadata.clone(),
            });
        }
    }
    kept
}

/// True if two messages have fields of the same names, types and metadata, so that one batch can hold both.
pub(crate) fn alike(one: &[KeptField], other: &[KeptField]) -> bool {
    let same = |a: &KeptField, b: &KeptField| {
        a.name == b.name && a.data_type == b.data_type && a.metadata == b.metadata
    };
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| same(a, b))
}

/// Restores the columns of messages that are all [`alike`].
pub(crate) fn restore(rows: &[&[KeptField]]) -> Result<RecordBatch, Error> {
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (at, kept) in rows.first().copied().unwrap_or_default().iter().enumerate() {
        let data_type = DataType::from_str(&kept.data_type)?;
        let values = rows.iter().map(|row| row.get(at).and_then(|field| field.value.as_deref()));
        let text: StringArray = values.collect();
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        columns.push(cast_with_options(&text, &data_type, &strict)?);
        let metadata: HashMap<String, String> = kept.metadata.clone().into_iter().collect();
        fields.push(Field::new(&kept.name, data_type, true).with_metadata(metadata));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{BooleanArray, Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray};
    use proptest::prelude::*;

    type Row = (Option<i64>, Option<f64>, Option<bool>, Option<String>, Option<i32>);

    proptest! {
        #[test]
        fn what_is_restored_is_what_was_kept(rows in prop::collection::vec(any::<Row>(), 1..20)) {
            // Times are written with years of four digits, so the test uses only those.
            let times = rows.iter().map(|row| row.4.map(|second| i64::from(second) * 1_000_003));
            let json = HashMap::from([("ARROW:extension:name".to_owned(), "arrow.json".to_owned())]);
            let time = TimestampMicrosecondArray::from_iter(times).with_timezone("UTC");
            let columns: Vec<(Field, ArrayRef)> = vec![
                (Field::new("i", DataType::Int64, true), Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.0)))),
                (
                    Field::new("f", DataType::Float64, true),
                    Arc::new(Float64Array::from_iter(rows.iter().map(|r| r.1.map(|f| f + 0.0)))),
                ),
                (
                    Field::new("b", DataType::Boolean, true),
                    Arc::new(BooleanArray::from_iter(rows.iter().map(|r| r.2))),
                ),
                (
                    Field::new("s", DataType::Utf8View, true).with_metadata(json),
                    Arc::new(StringViewArray::from_iter(rows.iter().map(|r| r.3.clone()))),
                ),
                (Field::new("t", arrow_array::Array::data_type(&time).clone(), true), Arc::new(time)),
            ];
            let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
            let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
            let kept = keep(&batch);
            let text = serde_json::to_string(&kept).unwrap();
            let kept: Vec<Vec<KeptField>> = serde_json::from_str(&text).unwrap();
            let slices: Vec<&[KeptField]> = kept.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(restore(&slices).unwrap(), batch);
        }
    }
}
