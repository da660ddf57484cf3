//! For tests: batches from payloads, and back.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, cast::AsArray};
use serde_json::Value;

use crate::{Ack, Batch, Meta, PayloadWriter};

/// Returns a batch of these payloads with an ack that has no effect.
pub fn batch<P: AsRef<[u8]>>(payloads: impl IntoIterator<Item = P>) -> Batch {
    batch_with(payloads, Ack::noop())
}

/// Returns a batch of these payloads with this ack.
pub fn batch_with<P: AsRef<[u8]>>(payloads: impl IntoIterator<Item = P>, ack: Ack) -> Batch {
    let mut writer = PayloadWriter::default();
    payloads.into_iter().for_each(|payload| writer.push(payload.as_ref()));
    let meta =
        Meta { source: "test".into(), path: None, time_us: 1_700_000_000_000_000, sequence: None, number: 0 };
    Batch::new(writer.finish(), Arc::new(meta), ack)
}

/// Returns the payloads of a batch as text.
pub fn payloads(batch: &Batch) -> Vec<String> {
    batch.payload().iter().map(|v| String::from_utf8_lossy(v.unwrap_or_default()).into_owned()).collect()
}

/// Returns columns as JSON objects, one per message, without NULLs. Times are microseconds since 1970.
pub fn rows(fields: &RecordBatch) -> Vec<Value> {
    use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
    use arrow_schema::DataType;
    let value = |column: &dyn Array, row: usize| match column.data_type() {
        DataType::Utf8View => Value::from(column.as_string_view().value(row)),
        DataType::Utf8 => Value::from(column.as_string::<i32>().value(row)),
        DataType::Int64 => Value::from(column.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => Value::from(column.as_primitive::<Float64Type>().value(row)),
        DataType::Boolean => Value::from(column.as_boolean().value(row)),
        DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, _) => {
            Value::from(column.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        other => Value::from(format!("<{other}>")),
    };
    (0..fields.num_rows())
        .map(|row| {
            let schema = fields.schema();
            let columns = schema.fields().iter().zip(fields.columns());
            let present = columns.filter(|(_, column)| !column.is_null(row));
            Value::Object(present.map(|(f, column)| (f.name().clone(), value(column, row))).collect())
        })
        .collect()
}
