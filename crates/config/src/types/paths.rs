//! Options that accept one path or several.

use schemars::JsonSchema;
use serde::Deserialize;

/// One path or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Paths {
    /// A path or pattern.
    One(String),
    /// Several paths or patterns.
    Many(Vec<String>),
}

impl Paths {
    /// Returns all paths.
    pub fn all(&self) -> &[String] {
        match self {
            Paths::One(path) => std::slice::from_ref(path),
            Paths::Many(paths) => paths,
        }
    }
}
