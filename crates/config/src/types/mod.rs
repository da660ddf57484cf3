//! Values that people write in configurations, and that are more than a number or a text.
//!
//! Each is read from text by `FromStr`, says in its schema what to write, and has a format of its own, so
//! that a mistake in it is found with all the others.

pub(crate) mod byte_range;
pub(crate) mod byte_size;
mod file_mode;
pub(crate) mod pattern;
mod text_type;
pub(crate) mod time_span;

pub use byte_range::ByteRange;
pub use byte_size::ByteSize;
pub use file_mode::FileMode;
pub use pattern::Pattern;
pub use time_span::TimeSpan;
