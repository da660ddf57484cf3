//! What several components need: a file each, named after the idea.

pub(crate) mod columns;
pub(crate) mod conditions;
pub(crate) mod keys;
pub(crate) mod names;
pub(crate) mod ordered;
pub(crate) mod timestamps;
