//! Gives slices of columns buffers that are no larger than the slice.
//!
//! The budget counts whole buffers. A batch of a few rows may be a slice of a table of gigabytes. Such a
//! slice gets new buffers over its part of the same memory, so that only this part counts. Only offsets are
//! copied.

#![allow(unsafe_code, reason = "text that is known to be UTF-8 is not validated again")]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, LargeBinaryType, LargeUtf8Type, Utf8Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{ArrowNativeType, Buffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

/// Returns the same rows over narrow buffers, for column types that allow it.
pub fn narrowed(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = rows.columns().iter().map(|column| match column.data_type() {
        DataType::Binary => Ok(bytes(column.as_bytes::<BinaryType>())),
        DataType::LargeBinary => Ok(bytes(column.as_bytes::<LargeBinaryType>())),
        DataType::Utf8 => Ok(bytes(column.as_bytes::<Utf8Type>())),
        DataType::LargeUtf8 => Ok(bytes(column.as_bytes::<LargeUtf8Type>())),
        of => match of.primitive_width() {
            Some(width) => fixed(column, width),
            None => Ok(column.clone()),
        },
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(rows.schema(), columns.collect::<Result<_, _>>()?, &options)
}

/// True if the buffer is more than twice as large as needed, so that a narrow one is worthwhile.
fn is_wide(buffer: &Buffer, needed: usize) -> bool {
    buffer.capacity() / 2 > needed
}

fn bytes<T: ByteArrayType>(column: &GenericByteArray<T>) -> ArrayRef {
    let offsets = column.value_offsets();
    let (first, last) = (offsets.first().copied(), offsets.last().copied());
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let needed = last.as_usize().saturating_sub(first.as_usize());
    if !is_wide(column.values(), needed) {
        return Arc::new(column.clone());
    }
    let values = part(column.values(), first.as_usize(), needed);
    let rebased: ScalarBuffer<T::Offset> =
        offsets.iter().map(|&offset| offset - first).collect::<Vec<_>>().into();
    let nulls = column.nulls().cloned();
    // SAFETY: the values start at the first value of a valid column of this type, and the offsets are shifted
    // by the same amount.
    Arc::new(unsafe {
        GenericByteArray::<T>::new_unchecked(OffsetBuffer::new_unchecked(rebased), values, nulls)
    })
}

fn fixed(column: &ArrayRef, width: usize) -> Result<ArrayRef, ArrowError> {
    let data = column.to_data();
    let (Some(buffer), needed) = (data.buffers().first(), data.len() * width) else {
        return Ok(column.clone());
    };
    if !is_wide(buffer, needed) {
        return Ok(column.clone());
    }
    let values = part(buffer, data.offset() * width, needed);
    let narrow = ArrayData::builder(data.data_type().clone()).len(data.len()).add_buffer(values);
    Ok(make_array(narrow.nulls(data.nulls().cloned()).build()?))
}

/// Returns a part of a buffer as a buffer of its own over the same memory.
fn part(buffer: &Buffer, from: usize, length: usize) -> Buffer {
    struct Slice(Buffer);
    impl AsRef<[u8]> for Slice {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Buffer::from(::bytes::Bytes::from_owner(Slice(buffer.slice_with_length(from, length))))
}
