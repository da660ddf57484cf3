//! The sources: a file each.
