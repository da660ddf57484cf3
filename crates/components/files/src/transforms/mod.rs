//! The transforms: one file each.

pub mod check_size;
pub mod check_time;
pub mod check_type;
pub mod compress;
pub mod convert_image;
pub mod csv;
pub mod decompress;
pub mod exec;
pub mod forget;
pub mod hash;
pub mod lines;
pub mod pack;
pub mod remove;
pub mod rename_file;
pub mod slice;
pub mod strip_metadata;
pub mod upload;
pub mod write;
