//! Columns as bytes, and hashes that identify messages.
//!
//! A key is a hash of 128 bits. Among a billion keys, the chance that two collide is one in 10^20. So the
//! keys themselves need not be kept.
//!
//! XXH3 without a secret has the same hash for two keys that someone has computed: in an input of 64 bytes,
//! four words that make a product zero are enough. So a transform that takes equal hashes for equal keys
//! hashes under a [`Secret`], by SipHash. XXH3 with a secret was rejected: it is faster, but promises nothing
//! for inputs that are chosen. To keep and compare the keys was rejected: memory would depend on their
//! length.

use std::{fmt, io};

use arrow_array::{Array, ArrayRef, BinaryViewArray, cast::AsArray};
use arrow_schema::{DataType, Field};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use siphasher::sip128::SipHasher13;
use thalweg_record::{Batch, PAYLOAD, PayloadWriter};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128, xxh3_128_with_seed};

use crate::columns::is_json_field;
use crate::json;
use crate::values::Values;

/// Returns a column as bytes, by the name that expressions use. The payload and text are not copied. A JSON
/// string is returned without its quotes and escapes, any other value in its written form. `None` if the
/// column does not exist or has no written form.
pub fn bytes_of(batch: &Batch, name: &str) -> Option<BinaryViewArray> {
    if name == PAYLOAD && batch.fields().column_by_name(PAYLOAD).is_none() {
        return Some(batch.payload().clone());
    }
    let column = batch.column(name)?;
    match batch.field(name) {
        Some((_, field)) => bytes_of_column(field, &column),
        None => as_bytes(&column),
    }
}

/// Returns a column as bytes, in the same form as [`bytes_of`].
pub fn bytes_of_column(field: &Field, column: &ArrayRef) -> Option<BinaryViewArray> {
    if let (true, Some(json)) = (is_json_field(field), column.as_string_view_opt()) {
        return Some(json::plain_texts(json).to_binary_view());
    }
    match field.data_type() {
        DataType::Float64 => Some(written(field, column)),
        _ => as_bytes(column),
    }
}

/// Returns the values of a column as encoders write them.
fn written(field: &Field, column: &ArrayRef) -> BinaryViewArray {
    let values = Values::of(field, column);
    let mut writer = PayloadWriter::with_capacity(column.len() * 8, column.len());
    for row in 0..column.len() {
        values.write_text(row, writer.buffer());
        writer.end();
    }
    let (views, buffers, _) = writer.finish().into_parts();
    BinaryViewArray::new(views, buffers, column.logical_nulls())
}

/// Returns a column as bytes: text without a copy, any other value in its written form. `None` if the type
/// has no written form.
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

/// Replaces NULLs by empty values, because payloads are never NULL. The bytes are not copied.
pub fn present(column: BinaryViewArray) -> BinaryViewArray {
    let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else { return column };
    let views = column.views().iter().zip(nulls).map(|(&view, is_valid)| if is_valid { view } else { 0 });
    let views: Vec<u128> = views.collect();
    let buffers = column.data_buffers().to_vec();
    BinaryViewArray::try_new(views.into(), buffers, None).unwrap_or_else(|_| {
        // This cannot fail, because all views are valid. The copy is correct in any case.
        let mut writer = PayloadWriter::default();
        column.iter().for_each(|value| writer.push(value.unwrap_or_default()));
        writer.finish()
    })
}

/// The hash of NULL and of a missing column. No text is known to have this hash.
const NULL: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834;

/// Returns a hash of bytes. It is the same in each run, so states may contain it.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Computes the key of each message: a hash of the values of these columns. Replaces the contents of
/// `hashes`. It is the same in each run and for everyone: for choices that must not change. A transform that
/// takes equal hashes for equal keys uses a [`Secret`].
pub fn hash_keys(batch: &Batch, names: &[String], seed: u64, hashes: &mut Vec<u128>) {
    hash_columns(batch, names, hashes, |value| xxh3_128_with_seed(value, seed), xxh3_128);
}

/// Computes the hash of each message from those of its values. `of_value` hashes a value, `of_both` the bytes
/// of two hashes.
fn hash_columns(
    batch: &Batch,
    names: &[String],
    hashes: &mut Vec<u128>,
    of_value: impl Fn(&[u8]) -> u128,
    of_both: impl Fn(&[u8]) -> u128,
) {
    hashes.clear();
    for (number, name) in names.iter().enumerate() {
        let column = bytes_of(batch, name);
        let hash = |row: usize| match &column {
            Some(column) if column.is_valid(row) => of_value(column.value(row)),
            _ => NULL,
        };
        if number == 0 {
            hashes.extend((0..batch.rows()).map(hash));
        } else {
            for (row, so_far) in hashes.iter_mut().enumerate() {
                let mut both = [0; 32];
                both[..16].copy_from_slice(&so_far.to_le_bytes());
                both[16..].copy_from_slice(&hash(row).to_le_bytes());
                *so_far = of_both(&both);
            }
        }
    }
}

/// The secret of a transform that takes equal hashes for equal keys. Without it, no one can make two keys
/// with the same hash. It is drawn when there is no state, and a state that has hashes has it too: as text,
/// in base64.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret([u8; 16]);

impl Secret {
    /// Draws a secret.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns a secret for one purpose: hashes under it say nothing of those for another one.
    pub fn derived(&self, purpose: &str) -> Self {
        let hash = SipHasher13::new_with_key(&self.0).hash(purpose.as_bytes());
        Self(u128::from(hash).to_le_bytes())
    }

    /// Computes the key of each message: a hash of the values of these columns, by SipHash-1-3 with 128 bits.
    /// Replaces the contents of `hashes`.
    pub fn hash_keys(&self, batch: &Batch, names: &[String], hashes: &mut Vec<u128>) {
        let hasher = SipHasher13::new_with_key(&self.0);
        let hash = |bytes: &[u8]| u128::from(hasher.hash(bytes));
        hash_columns(batch, names, hashes, hash, hash);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        STANDARD.encode(secret.0)
    }
}

impl TryFrom<String> for Secret {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("the secret of its hashes is damaged")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringViewArray};
    use proptest::prelude::*;
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

    #[test]
    fn a_secret_for_a_purpose_is_the_same_each_time_and_another_one_than_that_for_others() {
        let secret = Secret::random().unwrap();
        assert_eq!(secret.derived("a"), secret.derived("a"));
        assert_ne!(secret.derived("a"), secret.derived("b"));
        assert_ne!(secret.derived(""), secret);
    }

    #[test]
    fn a_secret_is_read_back_as_it_was_and_shown_to_no_one() {
        let [one, other] = [(); 2].map(|()| Secret::random().unwrap());
        assert_ne!(one, other);
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Secret>(&text).unwrap(), one);
        assert_eq!(format!("{one:?}"), "Secret(..)");
        for damaged in ["\"\"", "\"AAAA\"", "\"?\"", "5"] {
            assert!(serde_json::from_str::<Secret>(damaged).is_err(), "{damaged}");
        }
    }

    type Pair = (Option<String>, Option<String>);

    proptest! {
        /// With every secret, keys are equal where all values are, and nowhere else.
        #[test]
        fn which_keys_are_equal_does_not_depend_on_the_secret(
            pairs in prop::collection::vec((any::<Option<bool>>(), any::<Option<bool>>()), 1..20),
            texts in ("[ab]{0,2}", "\\PC{0,40}"),
            secrets in any::<[[u8; 16]; 2]>(),
        ) {
            let text = |chosen: bool| if chosen { texts.0.clone() } else { texts.1.clone() };
            let pairs = pairs.into_iter().map(|(one, other)| (one.map(text), other.map(text)));
            let pairs: Vec<Pair> = pairs.collect();
            let ones: StringViewArray = pairs.iter().map(|(one, _)| one.clone()).collect();
            let others: StringViewArray = pairs.iter().map(|(_, other)| other.clone()).collect();
            let batch = testing::batch(vec![""; pairs.len()])
                .set_fields([
                    (Field::new("one", DataType::Utf8View, true), Arc::new(ones) as ArrayRef),
                    (Field::new("other", DataType::Utf8View, true), Arc::new(others) as ArrayRef),
                ])
                .unwrap();
            let names = ["one".to_owned(), "other".to_owned()];
            for secret in secrets {
                let mut keys = Vec::new();
                Secret(secret).hash_keys(&batch, &names, &mut keys);
                for (row, pair) in pairs.iter().enumerate() {
                    for (other, other_pair) in pairs.iter().enumerate() {
                        prop_assert_eq!(keys[row] == keys[other], pair == other_pair);
                    }
                }
            }
        }
    }
}
