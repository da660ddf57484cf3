//! The positions of the parts of a picture file: the segments of a JPEG, the chunks of a PNG or WebP.
//!
//! These iterators copy nothing and interpret only lengths. Each ends with the bytes, even if a length
//! promises more.

pub(crate) mod jpeg;
pub(crate) mod png;
pub(crate) mod webp;
