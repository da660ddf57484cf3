//! Configuration values that are more than a number or a text.
//!
//! Each is parsed by `FromStr`, describes itself in its schema, and has its own format, so its mistakes are
//! found together with all others.

pub(crate) mod byte_range;
pub(crate) mod byte_size;
pub(crate) mod cron;
mod file_mode;
mod list;
pub(crate) mod pattern;
mod text_type;
pub(crate) mod time_span;

pub use byte_range::ByteRange;
pub use byte_size::ByteSize;
pub use cron::Cron;
pub use file_mode::FileMode;
pub use list::List;
pub use pattern::Pattern;
pub use time_span::TimeSpan;
