//! The option `on_error`.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::target::Edit;

/// How a value is treated that a transform cannot process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnError {
    /// The message leaves by the `errors` output.
    #[default]
    Reject,
    /// The value stays unchanged.
    Keep,
    /// The value becomes empty.
    Clear,
}

impl OnError {
    /// The edit of a value that cannot be processed.
    pub(crate) fn edit<'v>(self, value: &'v [u8], reason: String) -> Result<Edit<'v>, String> {
        match self {
            Self::Reject => Err(reason),
            Self::Keep => Ok(Edit::Piece(value)),
            Self::Clear => Ok(Edit::Piece(&[])),
        }
    }
}
