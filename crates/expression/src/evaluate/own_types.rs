//! Messages of a batch grouped by the types of their own values.
//!
//! A column has one Arrow type, but its values may have several: a JSON column holds any values, a column of
//! numbers (`thalweg.number`) holds integers and floats, and NULL has no type. An expression is evaluated for
//! each group of messages whose values have the same types, as if each message were in a batch by itself.
//! Otherwise `a / 2` would depend on whether another message of the batch has `1.5` in `a`.
//!
//! Whether NULLs have a type matters only if the expression chooses among values, as `coalesce` does: all
//! other operators and functions return NULL for NULL. So NULLs form groups of their own only there, and
//! where a message fails: an operand that would fail is not even evaluated beside a NULL without a type.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, UInt32Array,
    builder::StringViewBuilder, cast::AsArray, new_null_array, types::Float64Type, types::Int64Type,
};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use arrow_select::{interleave::interleave, take::take};

use super::{Kind, Present};
use crate::plan::ColumnType;

/// Whole numbers up to this value are exact as floats.
const EXACT: f64 = (1u64 << 53) as f64;

/// The type of a single value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Own {
    Nothing,
    Int,
    Float,
    Bool,
    Text,
    /// An object, an array, or a number that no column holds.
    Json,
    /// The type of the column.
    Same,
}

/// Messages whose values have the same types.
pub(super) struct Group {
    pub(super) rows: UInt32Array,
    pub(super) columns: Vec<Option<Present>>,
}

/// Returns the groups of a batch, or `None` if all values have the types of their columns. `columns` are the
/// columns that the expression may read. With `split_nulls`, NULL is a type.
pub(super) fn groups(
    columns: &[Option<Present>],
    rows: usize,
    split_nulls: bool,
) -> Result<Option<Vec<Group>>, ArrowError> {
    let mut of_rows = vec![0u32; rows];
    let mut owns: Vec<Vec<Own>> = vec![Vec::new()];
    let mut is_mixed = vec![false; columns.len()];
    for (place, column) in columns.iter().enumerate() {
        let own = column.as_ref().and_then(|column| own_types(column, split_nulls));
        is_mixed[place] = own.is_some();
        let Some(own) = own else { continue };
        // Each group so far is divided by the types in this column.
        let mut numbers: HashMap<(u32, Own), u32> = HashMap::new();
        let mut divided: Vec<Vec<Own>> = Vec::new();
        // Values of one type often follow each other.
        let mut previous = None;
        for (group, own) in of_rows.iter_mut().zip(own) {
            let key = (*group, own);
            let number = match previous {
                Some((known, number)) if known == key => number,
                _ => *numbers.entry(key).or_insert_with(|| {
                    let mut types = owns[*group as usize].clone();
                    types.push(own);
                    divided.push(types);
                    divided.len() as u32 - 1
                }),
            };
            previous = Some((key, number));
            *group = number;
        }
        owns = divided;
    }
    if !is_mixed.contains(&true) || rows == 0 {
        return Ok(None);
    }
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); owns.len()];
    for (row, group) in of_rows.iter().enumerate() {
        members[*group as usize].push(row as u32);
    }
    let is_one = owns.len() == 1;
    let groups = members.into_iter().zip(owns).map(|(rows, owns)| {
        let rows = UInt32Array::from(rows);
        let mut owns = owns.into_iter();
        let columns = columns.iter().zip(&is_mixed).map(|(column, is_mixed)| {
            let Some(column) = column else { return Ok(None) };
            let taken = if is_one { column.values.clone() } else { take(&column.values, &rows, None)? };
            let own = if *is_mixed { owns.next().unwrap_or(Own::Same) } else { Own::Same };
            Ok(typed(column, taken, own))
        });
        Ok(Group { columns: columns.collect::<Result<_, ArrowError>>()?, rows })
    });
    Ok(Some(groups.collect::<Result<_, ArrowError>>()?))
}

/// Returns the types of the values of a column, or `None` if all have the column's.
fn own_types(column: &Present, split_nulls: bool) -> Option<Vec<Own>> {
    let values = &column.values;
    match column.kind {
        Kind::Json => Some(
            values.as_string_view_opt()?.iter().map(|value| value.map_or(Own::Nothing, of_json)).collect(),
        ),
        Kind::Number => {
            let own = |value: f64| if is_whole(value) { Own::Int } else { Own::Float };
            Some(
                values
                    .as_primitive_opt::<Float64Type>()?
                    .iter()
                    .map(|value| value.map_or(Own::Nothing, own))
                    .collect(),
            )
        }
        Kind::Plain => {
            let nulls = values.logical_nulls().filter(|nulls| split_nulls && nulls.null_count() > 0)?;
            Some(nulls.iter().map(|is_valid| if is_valid { Own::Same } else { Own::Nothing }).collect())
        }
        Kind::Meta => None,
    }
}

fn of_json(text: &str) -> Own {
    let text = text.trim_ascii();
    match text.as_bytes().first() {
        None | Some(b'n') => Own::Nothing,
        Some(b'"') => Own::Text,
        Some(b't' | b'f') => Own::Bool,
        Some(b'-' | b'0'..=b'9') if text == "-0" || text.contains(['.', 'e', 'E']) => Own::Float,
        Some(b'-' | b'0'..=b'9') if text.parse::<i64>().is_ok() => Own::Int,
        _ => Own::Json,
    }
}

/// True if a value of a column of numbers is an integer.
fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() <= EXACT && !(value == 0.0 && value.is_sign_negative())
}

/// Returns values that all have the same type as a column of that type; `None` for NULLs.
fn typed(column: &Present, values: ArrayRef, own: Own) -> Option<Present> {
    let texts = || values.as_string_view().iter();
    let plain = |values: ArrayRef| {
        let kind = ColumnType { data_type: values.data_type().clone(), json: false, field: true };
        Some(Present { values, column: kind, kind: Kind::Plain })
    };
    match (own, column.kind) {
        (Own::Nothing, _) => None,
        (Own::Int, Kind::Number) => plain(cast(&values, &DataType::Int64).ok()?),
        (Own::Float, Kind::Number) => plain(values),
        (Own::Int, _) => {
            plain(Arc::new(texts().map(|text| text?.trim_ascii().parse().ok()).collect::<Int64Array>()))
        }
        (Own::Float, _) => {
            plain(Arc::new(texts().map(|text| text?.trim_ascii().parse().ok()).collect::<Float64Array>()))
        }
        (Own::Bool, _) => {
            plain(Arc::new(texts().map(|text| text?.trim_ascii().parse().ok()).collect::<BooleanArray>()))
        }
        (Own::Text, _) => {
            let plain_text = |text: Option<&str>| serde_json::from_str::<String>(text?).ok();
            plain(Arc::new(texts().map(plain_text).collect::<StringViewArray>()))
        }
        (Own::Json | Own::Same, _) => Some(Present { values, ..column.clone() }),
    }
}

/// The values of a group: those of these messages.
pub(super) struct Part {
    pub(super) rows: UInt32Array,
    pub(super) values: ArrayRef,
    pub(super) kind: Kind,
}

/// Puts the values of all groups into one column, each in its row and with its own type. Returns the column
/// and its kind.
pub(super) fn merge(parts: &[Part], rows: usize) -> Result<(ArrayRef, Kind), ArrowError> {
    if let [part] = parts {
        return Ok((part.values.clone(), part.kind));
    }
    let has_values = |part: &&Part| part.values.logical_null_count() < part.values.len();
    let mut types: Vec<(&DataType, Kind)> = Vec::new();
    for part in parts.iter().filter(has_values) {
        let found = (part.values.data_type(), part.kind);
        if !types.contains(&found) {
            types.push(found);
        }
    }
    let (wanted, kind) = match types.as_slice() {
        [] => (parts.first().map_or(DataType::Utf8View, |part| part.values.data_type().clone()), Kind::Plain),
        [(data_type, kind)] => ((*data_type).clone(), *kind),
        [_, _] if are_numbers(parts) => (DataType::Float64, Kind::Number),
        _ => (DataType::Utf8View, Kind::Json),
    };
    let converted = parts.iter().map(|part| match &wanted {
        wanted if !has_values(&part) => Ok(new_null_array(wanted, part.values.len())),
        _ if kind == Kind::Json && part.kind != Kind::Json => as_json(&part.values),
        wanted if part.values.data_type() != wanted => cast(&part.values, wanted),
        _ => Ok(part.values.clone()),
    });
    let converted = converted.collect::<Result<Vec<ArrayRef>, _>>()?;
    let mut places = vec![(0, 0); rows];
    for (number, part) in parts.iter().enumerate() {
        for (at, row) in part.rows.values().iter().enumerate() {
            if let Some(place) = places.get_mut(*row as usize) {
                *place = (number, at);
            }
        }
    }
    let converted: Vec<&dyn Array> = converted.iter().map(AsRef::as_ref).collect();
    Ok((interleave(&converted, &places)?, kind))
}

/// True if all values are integers or floats that a column of numbers can tell apart.
fn are_numbers(parts: &[Part]) -> bool {
    parts.iter().all(|part| match part.values.data_type() {
        _ if part.values.logical_null_count() == part.values.len() => true,
        DataType::Int64 => {
            let exact = |value: i64| value.unsigned_abs() <= EXACT as u64;
            part.values.as_primitive::<Int64Type>().iter().flatten().all(exact)
        }
        DataType::Float64 if part.kind == Kind::Plain => {
            !part.values.as_primitive::<Float64Type>().iter().flatten().any(is_whole)
        }
        _ => false,
    })
}

/// Returns values as JSON, each as it is written in a column of its own.
fn as_json(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let floats = values.as_primitive_opt::<Float64Type>();
    let plain = cast(values, &DataType::Utf8View)?;
    let plain = plain.as_string_view();
    let needs_quotes = !matches!(values.data_type(), DataType::Int64 | DataType::Boolean);
    for row in 0..values.len() {
        match floats {
            _ if values.is_null(row) => texts.append_null(),
            Some(floats) if floats.value(row).is_finite() => {
                texts.append_value(zmij::Buffer::new().format_finite(floats.value(row)));
            }
            Some(_) => texts.append_value("null"),
            None if needs_quotes => texts.append_value(serde_json::Value::from(plain.value(row)).to_string()),
            None => texts.append_value(plain.value(row)),
        }
    }
    Ok(Arc::new(texts.finish()))
}
