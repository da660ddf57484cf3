//! The names of a transform's outputs.

use thalweg_engine::Mistake;

/// Returns the mistakes in the labels of outputs.
pub(crate) fn check_labels<'a>(labels: impl IntoIterator<Item = &'a str>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for label in labels {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if label == "errors" {
            let message = "The label `errors` is taken: messages that cannot be processed leave by it.";
            mistakes.push(Mistake::new("", message).help("Choose another, such as `failures`."));
        } else if label.is_empty() || !label.chars().all(is_name) {
            let mistake = Mistake::new("", format!("`{label}` cannot be a label."));
            mistakes.push(mistake.help("A label has letters, digits, `_` and `-` only."));
        }
    }
    mistakes
}
