//! Columns of byte views: many short slices of a few large buffers.
//!
//! A view is sixteen bytes: a length, and either the bytes themselves (up to twelve) or their first four, a
//! buffer and an offset (the Arrow format's *Variable-size Binary View Layout*). Cutting a buffer into lines,
//! or a line into fields, therefore copies nothing. A value that had to be changed, such as a decoded escape,
//! is written to a side buffer of the same column.
//!
//! The builders here accept slices and compare addresses to find out whether a slice is part of a base
//! buffer. A parser therefore needs no arithmetic on offsets, and cannot get it wrong.

use std::sync::Arc;

use arrow_array::{BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBufferBuilder, ScalarBuffer};

/// Values of up to this many bytes are stored in the view itself.
const INLINE: usize = 12;

/// The most bytes in one buffer that is written here: offsets in views have 32 bits.
const BLOCK: usize = 1 << 30;

/// Builds a column of bytes over base buffers.
#[derive(Debug)]
pub struct ViewBuilder {
    base: Vec<Buffer>,
    side: Vec<u8>,
    views: Vec<u128>,
    nulls: NullBufferBuilder,
    /// The base buffer that contained the last value: the next value is nearly always in it too.
    last: usize,
}

impl ViewBuilder {
    /// Creates a builder for about `rows` values, most of which are slices of `base`.
    pub fn over(base: &[Buffer], rows: usize) -> Self {
        Self {
            base: base.to_vec(),
            side: Vec::new(),
            views: Vec::with_capacity(rows),
            nulls: NullBufferBuilder::new(rows),
            last: 0,
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// True if no value was added yet.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Adds a value, without a copy if it is a slice of a base buffer.
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        let view = if value.len() <= INLINE {
            inline_view(value)
        } else {
            match self.locate(value) {
                Some((block, offset)) => outline_view(value, block, offset),
                None => self.push_aside(value),
            }
        };
        self.views.push(view);
        self.nulls.append_non_null();
    }

    /// Adds the `length` bytes at `offset` of base buffer number `block`. Returns false and adds nothing if
    /// that range does not exist. A caller that knows the range saves the search for the buffer.
    #[inline]
    pub fn push_range(&mut self, block: usize, offset: usize, length: usize) -> bool {
        let end = offset.saturating_add(length);
        let (Some(value), true) =
            (self.base.get(block).and_then(|buffer| buffer.get(offset..end)), end <= u32::MAX as usize)
        else {
            return false;
        };
        let view = match length {
            0..=INLINE => inline_view(value),
            _ => outline_view(value, block as u32, offset as u32),
        };
        self.views.push(view);
        self.nulls.append_non_null();
        true
    }

    /// Adds a value that `write` appends to a buffer, so that it is held once. Adds nothing if that fails.
    ///
    /// # Errors
    /// That of `write`.
    pub fn push_written<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        // A value has at most 1 GiB and takes up to three times as much, so the offset of none exceeds 32
        // bits.
        if self.side.len() > BLOCK / 4 {
            self.base.push(Buffer::from_vec(std::mem::take(&mut self.side)));
        }
        let start = self.side.len();
        if let Err(error) = write(&mut self.side) {
            self.side.truncate(start);
            return Err(error);
        }
        let value = self.side.get(start..).unwrap_or_default();
        assert!(start + value.len() <= u32::MAX as usize, "a value is far smaller than a batch may be");
        self.views.push(match value.len() {
            0..=INLINE => inline_view(value),
            _ => outline_view(value, self.base.len() as u32, start as u32),
        });
        self.nulls.append_non_null();
        Ok(())
    }

    /// Adds a NULL.
    #[inline]
    pub fn push_null(&mut self) {
        self.views.push(0);
        self.nulls.append_null();
    }

    /// Adds the last value again, without a copy. Without a value, adds a NULL.
    #[inline]
    pub fn push_again(&mut self) {
        match self.views.last().copied() {
            Some(view) if self.nulls.is_valid(self.views.len() - 1) => {
                self.views.push(view);
                self.nulls.append_non_null();
            }
            _ => self.push_null(),
        }
    }

    /// Copies a value to the side buffer. A full side buffer becomes a base buffer and is replaced by an
    /// empty one.
    fn push_aside(&mut self, value: &[u8]) -> u128 {
        assert!(value.len() <= BLOCK, "a value is far smaller than a batch may be");
        if self.side.len() + value.len() > BLOCK {
            self.base.push(Buffer::from_vec(std::mem::take(&mut self.side)));
        }
        let offset = self.side.len() as u32;
        self.side.extend_from_slice(value);
        outline_view(value, self.base.len() as u32, offset)
    }

    #[inline]
    fn locate(&mut self, value: &[u8]) -> Option<(u32, u32)> {
        let within = |buffer: &Buffer| {
            let offset = (value.as_ptr() as usize).checked_sub(buffer.as_ptr() as usize)?;
            let end = offset + value.len();
            (end <= buffer.len() && end <= u32::MAX as usize).then_some(offset as u32)
        };
        if let Some(offset) = self.base.get(self.last).and_then(within) {
            return Some((self.last as u32, offset));
        }
        let (block, offset) =
            self.base.iter().enumerate().find_map(|(block, buffer)| Some((block, within(buffer)?)))?;
        self.last = block;
        Some((block as u32, offset))
    }

    /// Returns the finished column.
    pub fn finish(self) -> BinaryViewArray {
        let (views, buffers, nulls) = self.into_parts();
        trusted::binary(views, buffers, nulls)
    }

    fn into_parts(self) -> (ScalarBuffer<u128>, Arc<[Buffer]>, Option<arrow_buffer::NullBuffer>) {
        let Self { mut base, side, views, mut nulls, last: _ } = self;
        base.push(Buffer::from_vec(side));
        (ScalarBuffer::from(views), base.into(), nulls.finish())
    }
}

/// Returns the view of a value that is short enough to be stored in it. Arrow's own `make_view` branches to
/// separate code for each of the thirteen lengths, which is mispredicted for values of mixed lengths. Two
/// overlapping reads serve all lengths.
#[inline]
fn inline_view(value: &[u8]) -> u128 {
    let length = value.len();
    let bytes = if let (Some(head), Some(tail)) = (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        u128::from(u64::from_le_bytes(*head)) | u128::from(u64::from_le_bytes(*tail)) << ((length - 8) * 8)
    } else if let (Some(head), Some(tail)) = (value.first_chunk::<4>(), value.last_chunk::<4>()) {
        u128::from(u32::from_le_bytes(*head)) | u128::from(u32::from_le_bytes(*tail)) << ((length - 4) * 8)
    } else if let [first, .., last] = value {
        // In a value of one or two bytes, the middle byte is also the first or the last.
        u128::from(*first)
            | u128::from(value[length / 2]) << (length / 2 * 8)
            | u128::from(*last) << ((length - 1) * 8)
    } else {
        value.first().map_or(0, |&only| u128::from(only))
    };
    bytes << 32 | length as u128
}

/// Returns the view of a value that is too long to be stored in it.
#[inline]
fn outline_view(value: &[u8], block: u32, offset: u32) -> u128 {
    let prefix = value.first_chunk().map_or(0, |prefix| u32::from_le_bytes(*prefix));
    value.len() as u128 | u128::from(prefix) << 32 | u128::from(block) << 64 | u128::from(offset) << 96
}

/// Returns the view of a value that is at `offset` of buffer number `block`, and true if the value is stored
/// in the view itself.
#[inline]
pub(crate) fn view_of(value: &[u8], block: u32, offset: usize) -> (u128, bool) {
    let end = offset + value.len();
    assert!(end <= u32::MAX as usize, "a column is far smaller than its offsets allow");
    match value.len() {
        0..=INLINE => (inline_view(value), true),
        _ => (outline_view(value, block, offset as u32), false),
    }
}

/// Builds a column of text over base buffers. Every value is a `str` when it is added, so the column is valid
/// UTF-8 without another check.
#[derive(Debug)]
pub struct TextBuilder(ViewBuilder);

impl TextBuilder {
    /// Creates a builder for about `rows` values, most of which are slices of `base`.
    pub fn over(base: &[Buffer], rows: usize) -> Self {
        Self(ViewBuilder::over(base, rows))
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no value was added yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a value, without a copy if it is a slice of a base buffer.
    #[inline]
    pub fn push(&mut self, value: &str) {
        self.0.push(value.as_bytes());
    }

    /// Adds a NULL.
    #[inline]
    pub fn push_null(&mut self) {
        self.0.push_null();
    }

    /// Adds the last value again, without a copy. Without a value, adds a NULL.
    #[inline]
    pub fn push_again(&mut self) {
        self.0.push_again();
    }

    /// Returns the finished column.
    pub fn finish(self) -> StringViewArray {
        let (views, buffers, nulls) = self.0.into_parts();
        trusted::text(views, buffers, nulls)
    }
}

/// Writes new payloads one after another into one buffer. A line feed that is not part of the payload follows
/// each one, so a sink that writes lines finds them ready in memory: see [`payload_runs`].
#[derive(Debug, Default)]
pub struct PayloadWriter {
    full: Vec<Buffer>,
    bytes: Vec<u8>,
    start: usize,
    views: Vec<u128>,
}

impl PayloadWriter {
    /// Creates a writer with capacity for `rows` payloads of `bytes` in all.
    pub fn with_capacity(bytes: usize, rows: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes + rows), views: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Returns the buffer to append the bytes of the current payload to. [`end`](Self::end) finishes the
    /// payload.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Finishes a payload: all bytes appended to the buffer since the last one.
    #[inline]
    pub fn end(&mut self) {
        let payload = self.bytes.get(self.start..).unwrap_or_default();
        assert!(
            self.start + payload.len() <= u32::MAX as usize,
            "a payload is far smaller than a batch may be"
        );
        let view = match payload.len() {
            0..=INLINE => inline_view(payload),
            _ => outline_view(payload, self.full.len() as u32, self.start as u32),
        };
        self.views.push(view);
        self.bytes.push(b'\n');
        self.start = self.bytes.len();
        if self.start > BLOCK {
            self.full.push(Buffer::from_vec(std::mem::take(&mut self.bytes)));
            self.start = 0;
        }
    }

    /// Discards the unfinished payload.
    pub fn abandon(&mut self) {
        self.bytes.truncate(self.start);
    }

    /// Writes a whole payload.
    pub fn push(&mut self, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.end();
    }

    /// Returns the number of finished payloads.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// True if no payload is finished.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Returns the finished column.
    pub fn finish(mut self) -> BinaryViewArray {
        self.abandon();
        self.full.push(Buffer::from_vec(self.bytes));
        trusted::binary(ScalarBuffer::from(self.views), self.full.into(), None)
    }
}

/// True if two columns of payloads are one in memory: a sink recognises a batch that it receives again. It
/// holds the first one until then, so that no other batch can occupy the same memory.
pub fn is_same_payload(one: &BinaryViewArray, other: &BinaryViewArray) -> bool {
    one.views().inner().ptr_eq(other.views().inner())
}

/// Returns the payloads as they are stored in memory, in as few pieces as possible. Payloads that follow one
/// another in a buffer, with exactly one `delimiter` between them and after the last, form one `Ok` piece
/// that includes the delimiters. `Err` is a single payload without a delimiter.
pub fn payload_runs(payload: &BinaryViewArray, delimiter: u8) -> impl Iterator<Item = Result<&[u8], &[u8]>> {
    let (views, buffers) = (payload.views(), payload.data_buffers());
    let mut row = 0;
    std::iter::from_fn(move || {
        let view = arrow_data::ByteView::from(*views.get(row)?);
        let first = payload.value(row);
        row += 1;
        if first.len() <= INLINE {
            return Some(Err(first));
        }
        let block = &buffers[view.buffer_index as usize];
        let start = view.offset as usize;
        let mut end = start + first.len();
        if block.get(end) != Some(&delimiter) {
            return Some(Err(first));
        }
        while let Some(&next) = views.get(row) {
            let length = next as u32 as usize;
            if length <= INLINE {
                // A short value is stored in its view. It continues the run if the block has the same bytes
                // here.
                let value = payload.value(row);
                let found = block.get(end + 1..end + 1 + length);
                if found != Some(value) || block.get(end + 1 + length) != Some(&delimiter) {
                    break;
                }
            } else {
                let next = arrow_data::ByteView::from(next);
                if next.buffer_index != view.buffer_index
                    || next.offset as usize != end + 1
                    || block.get(end + 1 + length) != Some(&delimiter)
                {
                    break;
                }
            }
            end += 1 + length;
            row += 1;
        }
        Some(Ok(&block[start..=end]))
    })
}

/// Returns the payloads, each followed by `delimiter`, as slices of the buffers that contain them. Returns
/// `None` if they are not stored like this in long pieces, or if less than half of that memory belongs to
/// them: a slice keeps its whole buffer alive.
pub fn payload_slices(payload: &BinaryViewArray, delimiter: u8) -> Option<Vec<Buffer>> {
    let buffers = payload.data_buffers();
    let mut slices = Vec::new();
    let mut used = 0;
    for run in payload_runs(payload, delimiter) {
        let run = run.ok()?;
        slices.push(buffers.iter().find_map(|buffer| slice_of(buffer, run))?);
        used += run.len();
    }
    let held: usize = buffers.iter().map(Buffer::capacity).sum();
    (used >= held / 2 && used >= slices.len() * LONG).then_some(slices)
}

/// Returns `bytes` as a slice of `buffer`, or `None` if they are not part of it.
fn slice_of(buffer: &Buffer, bytes: &[u8]) -> Option<Buffer> {
    let start = (bytes.as_ptr() as usize).checked_sub(buffer.as_ptr() as usize)?;
    (start + bytes.len() <= buffer.len()).then(|| buffer.slice_with_length(start, bytes.len()))
}

/// Minimum average length of the slices, in bytes. Below that, a copy is cheaper than many small pieces.
const LONG: usize = 16 << 10;

/// The only module that skips Arrow's validation.
#[allow(unsafe_code)]
pub(crate) mod trusted {
    use super::*;
    use arrow_buffer::NullBuffer;

    /// Builds a column from views that `inline_view` and `outline_view` made of slices of `buffers`.
    pub fn binary(
        views: ScalarBuffer<u128>,
        buffers: Arc<[Buffer]>,
        nulls: Option<NullBuffer>,
    ) -> BinaryViewArray {
        // SAFETY: every view comes from `inline_view`, which contains its bytes, or from `outline_view` (a
        // test compares both with Arrow's own). The bytes of the latter were at the given offset of the given
        // buffer when the view was made: `locate` and `push_range` check that the range is inside the buffer.
        // `Joined` takes views of the end of its buffer, and cuts off only bytes that a view contains. The
        // side buffer and the buffer of the writer only grow after that, but for a value that failed and has
        // no view. Each stays below `BLOCK` plus one value. NULLs are the view 0, the empty inline value.
        // `nulls` was appended to once for each view.
        unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) }
    }

    /// Like [`binary`], for values that were each a `str` when added, or joined of such values.
    pub fn text(
        views: ScalarBuffer<u128>,
        buffers: Arc<[Buffer]>,
        nulls: Option<NullBuffer>,
    ) -> StringViewArray {
        // SAFETY: as above. Buffers are immutable, so bytes that were UTF-8 when added still are.
        unsafe { StringViewArray::new_unchecked(views, buffers, nulls) }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use arrow_array::{Array, builder::make_view};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_pushed_comes_back_and_arrow_finds_it_valid(
            base in "[a-zé\\n]{0,200}",
            cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..20),
            others in prop::collection::vec(prop::option::of("[a-zé]{0,30}"), 0..20),
        ) {
            let buffer = Buffer::from_vec(base.clone().into_bytes());
            let held = std::str::from_utf8(buffer.as_slice()).unwrap();
            let boundaries: Vec<usize> =
                (0..=held.len()).filter(|&at| held.is_char_boundary(at)).collect();
            let mut builder = TextBuilder::over(std::slice::from_ref(&buffer), 8);
            let mut expected = Vec::new();
            for (a, b) in cuts {
                let (a, b) = (boundaries[a.index(boundaries.len())], boundaries[b.index(boundaries.len())]);
                let value = &held[a.min(b)..a.max(b)];
                builder.push(value);
                expected.push(Some(value.to_owned()));
            }
            for value in others {
                match &value {
                    Some(value) => builder.push(value),
                    None => builder.push_null(),
                }
                expected.push(value);
            }
            let array = builder.finish();
            array.to_data().validate_full().unwrap();
            let found: Vec<_> = array.iter().map(|v| v.map(str::to_owned)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn runs_hold_every_payload_once_in_order(
            lines in prop::collection::vec("[a-z]{0,30}", 0..30),
            keep in prop::collection::vec(any::<bool>(), 30),
        ) {
            let mut writer = PayloadWriter::default();
            lines.iter().for_each(|line| writer.push(line.as_bytes()));
            let array = writer.finish();
            array.to_data().validate_full().unwrap();
            let keep: arrow_array::BooleanArray = keep[..lines.len()].to_vec().into();
            let kept = arrow_select::filter::filter(&array, &keep).unwrap();
            let kept = kept.as_any().downcast_ref::<BinaryViewArray>().unwrap();
            let mut joined = Vec::new();
            for run in payload_runs(kept, b'\n') {
                match run {
                    Ok(run) => joined.extend_from_slice(run),
                    Err(single) => {
                        joined.extend_from_slice(single);
                        joined.push(b'\n');
                    }
                }
            }
            let expected: Vec<u8> =
                kept.iter().flat_map(|v| [v.unwrap(), b"\n"].concat()).collect();
            prop_assert_eq!(joined, expected);
        }
    }

    fn written(lines: &[&str]) -> BinaryViewArray {
        let mut writer = PayloadWriter::default();
        lines.iter().for_each(|line| writer.push(line.as_bytes()));
        writer.finish()
    }

    #[test]
    fn what_was_written_for_somebody_can_be_kept_as_it_lies() {
        let line = "x".repeat(100);
        let lines = vec![line.as_str(); 400];
        let array = written(&lines);
        let slices = payload_slices(&array, b'\n').unwrap();
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0].as_slice(), (lines.join("\n") + "\n").as_bytes());
        assert_eq!(slices[0].as_ptr(), array.data_buffers()[0].as_ptr());
        assert!(payload_slices(&array, b'\r').is_none());
        // Too little of the memory belongs to these messages.
        assert!(payload_slices(&array.slice(0, 100), b'\n').is_none());
        // The messages are in too many pieces.
        let keep: arrow_array::BooleanArray = (0..400).map(|at| Some(at % 10 != 0)).collect();
        let kept = arrow_select::filter::filter(&array, &keep).unwrap();
        let kept = kept.as_any().downcast_ref::<BinaryViewArray>().unwrap();
        assert!(payload_slices(kept, b'\n').is_none());
        assert!(payload_slices(&written(&["short", &line.repeat(400)]), b'\n').is_none());
    }

    #[test]
    fn a_value_has_the_view_that_arrow_gives_it() {
        let text = b"abcdefghijklmnop";
        for length in 0..=text.len() {
            let value = &text[..length];
            let view = if length <= INLINE { inline_view(value) } else { outline_view(value, 7, 9) };
            assert_eq!(view, make_view(value, 7, 9), "{length}");
        }
    }

    #[test]
    fn what_is_written_is_a_value_and_what_fails_is_none() {
        let mut builder = ViewBuilder::over(&[], 3);
        let long = b"a value that is too long for a view";
        builder.push(long);
        let failed = builder.push_written(|into| {
            into.extend_from_slice(b"a part of it");
            Err("wrong")
        });
        assert_eq!(failed, Err("wrong"));
        for value in [&long[..], b"short", b""] {
            builder
                .push_written(|into| {
                    into.extend_from_slice(value);
                    Ok::<(), ()>(())
                })
                .unwrap();
        }
        let array = builder.finish();
        array.to_data().validate_full().unwrap();
        assert_eq!(array.iter().flatten().collect::<Vec<_>>(), [&long[..], long, b"short", b""]);
    }

    #[test]
    fn the_last_value_is_added_again_where_it_lies() {
        let mut builder = TextBuilder::over(&[], 4);
        builder.push_again();
        let long = "a value that is too long for a view";
        for value in [long, "short"] {
            builder.push(value);
            builder.push_again();
        }
        builder.push_null();
        builder.push_again();
        let array = builder.finish();
        array.to_data().validate_full().unwrap();
        let found: Vec<_> = array.iter().collect();
        assert_eq!(found, [None, Some(long), Some(long), Some("short"), Some("short"), None, None]);
        assert_eq!(array.views()[1], array.views()[2]);
    }

    #[test]
    fn a_range_is_added_only_where_there_is_one() {
        let text = Buffer::from_vec(b"a first line here\nb\n".to_vec());
        let mut builder = ViewBuilder::over(std::slice::from_ref(&text), 3);
        assert!(builder.push_range(0, 0, 17));
        assert!(builder.push_range(0, 18, 1));
        assert!(builder.push_range(0, 20, 0));
        assert!(!builder.push_range(0, 18, 3));
        assert!(!builder.push_range(0, usize::MAX, 2));
        assert!(!builder.push_range(1, 0, 1));
        let array = builder.finish();
        array.to_data().validate_full().unwrap();
        assert_eq!(array.iter().flatten().collect::<Vec<_>>(), [&b"a first line here"[..], b"b", b""]);
    }

    #[test]
    fn a_payload_is_the_same_only_at_its_place_and_as_a_whole() {
        let (one, other) = (written(&["a", "b"]), written(&["a", "b"]));
        assert!(is_same_payload(&one, &one.clone()));
        assert!(!is_same_payload(&one, &other) && !is_same_payload(&one, &one.slice(0, 1)));
    }

    #[test]
    fn lines_of_one_buffer_are_one_run() {
        let text = Buffer::from_vec(b"a first line here\nb\na third line here\n".to_vec());
        let mut builder = ViewBuilder::over(std::slice::from_ref(&text), 3);
        text.split(|&b| b == b'\n').take(3).for_each(|line| builder.push(line));
        let array = builder.finish();
        assert_eq!(payload_runs(&array, b'\n').collect::<Vec<_>>(), [Ok(text.as_slice())]);
    }
}
