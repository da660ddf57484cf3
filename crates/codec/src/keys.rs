//! Columns as bytes, and as hashes to tell messages apart by.
//!
//! A key is a hash of 128 bits: of a billion keys, that two collide has a chance of one in 10^20, so that the
//! keys themselves need not be kept.

use arrow_array::{Array, ArrayRef, BinaryViewArray, cast::AsArray};
use arrow_schema::{DataType, Field};
use thalweg_record::{Batch, PAYLOAD, PayloadWriter};
use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

use crate::json;

/// A column as bytes, by the name that expressions use: the payload as it is, text without a copy, JSON that is a text as
/// what it says, and anything else as it is written. `None` if there is no such column or it has no written form.
pub fn bytes_of(batch: &Batch, name: &str) -> Option<BinaryViewArray> {
    if name == PAYLOAD && batch.fields().column_by_name(PAYLOAD).is_none() {
        return Some(batch.payload().clone());
    }
    let column = batch.column(name)?;
    let field = batch.fields().schema_ref().column_with_name(name).map(|(_, field)| field);
    if let (Some("arrow.json"), Some(json)) =
        (field.and_then(Field::extension_type_name), column.as_string_view_opt())
    {
        return Some(json::plain_texts(json).to_binary_view());
    }
    as_bytes(&column)
}

/// A column as bytes: text without a copy, anything else as it is written.
pub fn as_bytes(column: &ArrayRef) -> Option<BinaryViewArray> {
    match column.data_type() {
        DataType::BinaryView => Some(column.as_binary_view().clone()),
        DataType::Utf8View => Some(column.as_string_view().clone().to_binary_view()),
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            let column = arrow_cast::cast(column, &DataType::BinaryView).ok()?;
            Some(column.as_binary_view().clone())
        }
        _ => {
            let column = arrow_cast::cast(column, &DataType::Utf8View).ok()?;
            Some(column.as_string_view().clone().to_binary_view())
        }
    }
}

/// Without NULLs, which become empty: payloads are never NULL. The bytes stay where they are.
pub fn present(column: BinaryViewArray) -> BinaryViewArray {
    let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else { return column };
    let views = column.views().iter().zip(nulls).map(|(&view, is_valid)| if is_valid { view } else { 0 });
    let views: Vec<u128> = views.collect();
    let buffers = column.data_buffers().to_vec();
    BinaryViewArray::try_new(views.into(), buffers, None).unwrap_or_else(|_| {
        // It cannot be: the views are those that there were. A copy is right whatever they are.
        let mut writer = PayloadWriter::default();
        column.iter().for_each(|value| writer.push(value.unwrap_or_default()));
        writer.finish()
    })
}

/// What NULL, and a column that is not there, hashes to. Chance alone makes a text hash to it.
const NULL: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834;

/// The key of each message: a hash of the values of the columns named, replacing what `hashes` held.
pub fn hash_keys(batch: &Batch, names: &[String], seed: u64, hashes: &mut Vec<u128>) {
    hashes.clear();
    for (number, name) in names.iter().enumerate() {
        let column = bytes_of(batch, name);
        let hash = |row: usize| match &column {
            Some(column) if column.is_valid(row) => xxh3_128_with_seed(column.value(row), seed),
            _ => NULL,
        };
        if number == 0 {
            hashes.extend((0..batch.rows()).map(hash));
        } else {
            for (row, so_far) in hashes.iter_mut().enumerate() {
                let mut both = [0; 32];
                both[..16].copy_from_slice(&so_far.to_le_bytes());
                both[16..].copy_from_slice(&hash(row).to_le_bytes());
                *so_far = xxh3_128(&both);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringViewArray};
    use thalweg_record::testing;

    #[test]
    fn a_text_among_values_of_other_types_is_what_it_says() {
        let json = StringViewArray::from(vec![Some(r#""a \"b\"""#), Some("5"), None, Some(r#"{"c":1}"#)]);
        let field = crate::columns::FieldType::Json.field("mixed");
        let batch =
            testing::batch(["", "", "", ""]).set_fields([(field, Arc::new(json) as ArrayRef)]).unwrap();
        let bytes = bytes_of(&batch, "mixed").unwrap();
        let texts: Vec<_> =
            bytes.iter().map(|value| value.map(|value| std::str::from_utf8(value).unwrap())).collect();
        assert_eq!(texts, [Some("a \"b\""), Some("5"), None, Some(r#"{"c":1}"#)]);
    }

    #[test]
    fn without_nulls_there_is_nothing_in_their_place() {
        let texts = [Some("a text that is longer than a view"), None, Some(""), Some("short")];
        let column = BinaryViewArray::from_iter(texts);
        let there = column.data_buffers()[0].as_ptr();
        let column = present(column);
        assert_eq!(column.null_count(), 0);
        let found: Vec<_> = (0..4).map(|row| column.value(row)).collect();
        assert_eq!(found, texts.map(|text| text.unwrap_or_default().as_bytes()));
        assert_eq!(column.data_buffers()[0].as_ptr(), there);
    }

    #[test]
    fn keys_are_equal_where_all_columns_are() {
        let text: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("x"), Some("x"), None, None, Some("")]));
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1, 1, 1]));
        let batch = testing::batch(["a"; 5])
            .set_fields([
                (Field::new("text", DataType::Utf8View, true), text),
                (Field::new("number", DataType::Int64, true), number),
            ])
            .unwrap();
        let mut keys = vec![0];
        hash_keys(&batch, &["text".into(), "number".into()], 0, &mut keys);
        assert_eq!(keys.len(), 5);
        assert_eq!(keys[2], keys[3]);
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), 4);
        hash_keys(&batch, &["nothing".into()], 0, &mut keys);
        assert_eq!(keys, [NULL; 5]);
    }
}
