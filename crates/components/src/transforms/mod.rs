//! The transforms: a file each.

pub mod encode;
pub mod parse_json;
