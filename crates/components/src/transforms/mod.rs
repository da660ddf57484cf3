//! The transforms: a file each.

pub mod parse_json;
