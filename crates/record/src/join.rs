//! Values that are joined of several columns, row by row.
//!
//! Joining is in this crate because it writes views. The sizes are a function of their own: a caller with a
//! limit knows them before the values are made.

use arrow_array::types::{BinaryViewType, ByteViewType, StringViewType};
use arrow_array::{Array, BinaryViewArray, GenericByteViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};

use crate::views::{trusted, view_of};

/// One part of joined values: text or bytes.
#[derive(Debug)]
pub enum Part<'a, V: ByteViewType> {
    /// The same value in each row.
    One(&'a V::Native),
    /// A column.
    Each(&'a GenericByteViewArray<V>),
}

impl<V: ByteViewType> Part<'_, V> {
    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Self::One(_) => None,
            Self::Each(values) => values.nulls(),
        }
    }
}

/// Joined values that are not made yet.
#[derive(Debug)]
pub struct Joined<'a, V: ByteViewType> {
    parts: Vec<Part<'a, V>>,
    nulls: Option<NullBuffer>,
    sizes: Vec<usize>,
}

impl<'a> Joined<'a, StringViewType> {
    /// Prepares texts of these parts.
    pub fn texts(parts: Vec<Part<'a, StringViewType>>, rows: usize) -> Self {
        Self::of(parts, rows)
    }

    /// Makes the texts.
    pub fn finish(&self) -> StringViewArray {
        let (views, buffer) = self.join();
        trusted::text(views, [buffer].into(), self.nulls.clone())
    }
}

impl<'a> Joined<'a, BinaryViewType> {
    /// Prepares bytes of these parts.
    pub fn bytes(parts: Vec<Part<'a, BinaryViewType>>, rows: usize) -> Self {
        Self::of(parts, rows)
    }

    /// Makes the bytes.
    pub fn finish(&self) -> BinaryViewArray {
        let (views, buffer) = self.join();
        trusted::binary(views, [buffer].into(), self.nulls.clone())
    }
}

impl<'a, V: ByteViewType> Joined<'a, V> {
    fn of(parts: Vec<Part<'a, V>>, rows: usize) -> Self {
        let nulls = parts
            .iter()
            .fold(None, |nulls: Option<NullBuffer>, part| NullBuffer::union(nulls.as_ref(), part.nulls()));
        let mut sizes = vec![0; rows];
        for part in &parts {
            match part {
                Part::One(value) => sizes.iter_mut().for_each(|size| *size += bytes::<V>(value).len()),
                // The first 32 bits of a view are the length.
                Part::Each(values) => {
                    let views = sizes.iter_mut().zip(values.views().iter());
                    views.for_each(|(size, view)| *size += *view as u32 as usize);
                }
            }
        }
        let nulls_of = nulls.iter().flat_map(|nulls| nulls.iter().enumerate());
        nulls_of.filter(|(_, is_valid)| !is_valid).for_each(|(row, _)| sizes[row] = 0);
        Self { parts, nulls, sizes }
    }

    /// Returns the size of each value in bytes, 0 for a NULL.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Returns the values of which the value of a row is made.
    pub fn parts(&self, row: usize) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(move |part| match part {
            Part::One(value) => bytes::<V>(value),
            Part::Each(values) => bytes::<V>(values.value(row)),
        })
    }

    fn join(&self) -> (ScalarBuffer<u128>, Buffer) {
        let mut side = Vec::with_capacity(self.sizes.iter().sum());
        let mut views = Vec::with_capacity(self.sizes.len());
        for row in 0..self.sizes.len() {
            if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                views.push(0);
                continue;
            }
            let start = side.len();
            self.parts(row).for_each(|part| side.extend_from_slice(part));
            let (view, is_inline) = view_of(&side[start..], 0, start);
            views.push(view);
            if is_inline {
                side.truncate(start);
            }
        }
        (views.into(), Buffer::from_vec(side))
    }
}

fn bytes<V: ByteViewType>(value: &V::Native) -> &[u8] {
    value.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(number: usize) -> String {
        format!("a text that is longer than a view, number {number}")
    }

    #[test]
    fn short_and_long_texts_are_joined_and_null_stays_null() {
        let first: StringViewArray =
            [Some(long(1)), Some("a".into()), None, Some(String::new())].into_iter().collect();
        let second = StringViewArray::from(vec![Some("x"), Some("yz"), Some("w"), None]);
        let joined = Joined::texts(vec![Part::Each(&first), Part::One("-"), Part::Each(&second)], 4);
        assert_eq!(joined.sizes(), [long(1).len() + 2, 4, 0, 0]);
        let texts = joined.finish();
        texts.to_data().validate_full().unwrap();
        assert_eq!(
            texts.iter().collect::<Vec<_>>(),
            [Some(format!("{}-x", long(1)).as_str()), Some("a-yz"), None, None]
        );
    }

    #[test]
    fn bytes_need_not_be_text() {
        let halves = BinaryViewArray::from(vec![Some(b"\xc3".as_slice())]);
        let joined = Joined::bytes(vec![Part::Each(&halves), Part::One(b"\xa4".as_slice())], 1).finish();
        assert_eq!(joined.value(0), "\u{e4}".as_bytes());
    }

    #[test]
    fn slices_of_columns_are_joined_in_their_rows() {
        let column: StringViewArray = (0..5).map(|number| Some(long(number))).collect();
        let joined = Joined::texts(vec![Part::Each(&column.slice(3, 2)), Part::One("!")], 2).finish();
        assert_eq!(joined.iter().flatten().collect::<Vec<_>>(), [long(3) + "!", long(4) + "!"]);
    }
}
