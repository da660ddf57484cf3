//! The fields without which a sink can write no message.

/// Fields of which a message must have one, or leaves by `errors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededField {
    /// The option that names the fields, or has them as its default.
    pub option: &'static str,
    /// The names of the fields.
    pub names: Vec<String>,
    /// The way to correct it, if no message has one: a sentence.
    pub help: &'static str,
}
