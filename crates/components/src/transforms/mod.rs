//! The transforms: a file each.
