//! The transforms: a file each.

pub mod encode;
