//! Where the parts of a picture's file stand: the segments of a JPEG, the chunks of a PNG, those of a WebP.
//!
//! These walks copy nothing and understand nothing but lengths. Each ends where the bytes do, whatever was promised.

pub(crate) mod jpeg;
pub(crate) mod png;
pub(crate) mod webp;
