//! Substitutes variables and secrets in scalars.
//!
//! The substitution works on the tree, not on the text, so the content of a variable always stays one scalar.
//!
//! All substituted values together are limited as a document is: a few kilobytes of `${A}` could otherwise
//! take any amount of memory.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::secrets::keep_substituted;
use crate::{Diagnostics, Document, FormatError, Node, Span, Value, counted, nearest, place, scalar};

/// The largest file in bytes. Secrets and certificates are small; a larger file is probably a mistake.
const LARGEST_FILE: u64 = 1 << 20;

/// The most mistakes of one value that are kept. The place of each takes one reading of the value.
const MOST_MISTAKES: usize = 100;

/// A function that returns the value of a variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(crate) fn substitute(
    node: &mut Node,
    source: &str,
    directory: &Path,
    variables: Variables<'_>,
    diagnostics: &mut Diagnostics,
) {
    Substitution { source, directory, variables, left: Some(Document::MAX_BYTES) }.node(node, diagnostics);
}

struct Expanded {
    text: String,
    /// True if anything other than `$$` was replaced.
    secret: bool,
}

/// The mistakes of one value.
#[derive(Default)]
struct Mistakes {
    first: Vec<FormatError>,
    /// The place of the first mistake that is not kept, and their number.
    more: Option<(Range<usize>, u64)>,
}

impl Mistakes {
    fn push(&mut self, mistake: FormatError, range: Range<usize>) {
        if self.first.len() < MOST_MISTAKES {
            self.first.push(mistake.at(range));
        } else {
            self.more.get_or_insert((range, 0)).1 += 1;
        }
    }

    /// Adds the mistakes to those of the document. `text` is the value, and `span` its place in `source`.
    fn tell(self, source: &str, span: Span, text: &str, diagnostics: &mut Diagnostics) {
        for mistake in self.first {
            let range = mistake.range.unwrap_or(0..text.len());
            let diagnostic = diagnostics.error(place::within(source, span, text, range), mistake.message);
            if let Some(help) = mistake.help {
                diagnostic.help(help);
            }
        }
        if let Some((range, more)) = self.more {
            let message = format!("And {} from here on in this value.", counted(more, "more mistake"));
            diagnostics.error(place::within(source, span, text, range), message);
        }
    }
}

struct Substitution<'a> {
    source: &'a str,
    /// The directory of the document.
    directory: &'a Path,
    variables: Variables<'a>,
    /// How many bytes may still be substituted. `None` once they were not enough: the rest stays as it is.
    left: Option<usize>,
}

impl Substitution<'_> {
    fn node(&mut self, node: &mut Node, diagnostics: &mut Diagnostics) {
        match &mut node.value {
            Value::Sequence(items) => items.iter_mut().for_each(|item| self.node(item, diagnostics)),
            Value::Mapping(entries) => {
                entries.iter_mut().for_each(|(_, value)| self.node(value, diagnostics));
            }
            Value::String(text) if text.contains('$') => {
                let mut mistakes = Mistakes::default();
                let replaced = self.expand(text, &mut mistakes);
                mistakes.tell(self.source, node.span, text, diagnostics);
                let Some(expanded) = replaced else { return };
                node.substituted = expanded.secret;
                if node.raw.is_some() {
                    // An unquoted scalar has the type that its expanded text would have.
                    node.value = if expanded.secret {
                        scalar::typed(&expanded.text)
                    } else {
                        Value::String(expanded.text.clone())
                    };
                    node.raw = Some(expanded.text.into());
                } else {
                    *text = expanded.text;
                }
            }
            _ => {}
        }
    }

    /// Returns the value of `${inside}`, if there is room for it.
    fn value(&mut self, inside: &str, left: usize) -> Result<String, FormatError> {
        let value = value(inside, self.directory, self.variables)?;
        self.left = left.checked_sub(value.len());
        match self.left {
            Some(_) => Ok(value),
            None => Err(FormatError::new(format!(
                "With this value, more than {} MiB are substituted, the limit of a configuration.",
                Document::MAX_BYTES >> 20
            ))
            .help("Substitute shorter values, or fewer of them.")),
        }
    }

    /// Returns the text with all substitutions; `None` if there were none or a mistake was found.
    fn expand(&mut self, text: &str, mistakes: &mut Mistakes) -> Option<Expanded> {
        let mut expanded = Expanded { text: String::with_capacity(text.len()), secret: false };
        let mut at = 0;
        while let Some(rest) = text.get(at..) {
            let Some(dollar) = rest.find('$') else {
                expanded.text.push_str(rest);
                break;
            };
            let (before, from) = rest.split_at(dollar);
            expanded.text.push_str(before);
            at += dollar;
            if from.starts_with("$$") {
                expanded.text.push('$');
                at += 2;
            } else if let Some(inside) = from.strip_prefix("${") {
                let Some(length) = inside.find('}') else {
                    let error = FormatError::new("A `${` is never closed.");
                    let help = "Close it with `}`, or write `$${` if it is not a variable.";
                    mistakes.push(error.help(help), at..at + 2);
                    break;
                };
                let (inside, _) = inside.split_at(length);
                let range = at..at + length + 3;
                // A larger text would not be used.
                let left = self.left?;
                match self.value(inside, left) {
                    Ok(value) => expanded.text.push_str(&value),
                    Err(error) => mistakes.push(error, range),
                }
                expanded.secret = true;
                at += length + 3;
            } else {
                expanded.text.push('$');
                at += 1;
            }
        }
        (mistakes.first.is_empty() && (expanded.secret || expanded.text != text)).then_some(expanded)
    }
}

/// Returns the value of `${inside}`.
fn value(inside: &str, directory: &Path, variables: Variables<'_>) -> Result<String, FormatError> {
    if let Some(path) = inside.strip_prefix("file:") {
        let content = file(path.trim(), directory)?;
        keep_substituted(&content, &format!("${{{inside}}}"));
        return Ok(content);
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !starts_well || !name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_') {
        let error = FormatError::new(format!("`{name}` is not the name of a variable."));
        return Err(match name.split_once(':') {
            Some((scheme, rest)) if nearest(scheme, ["file"]).is_some() => {
                error.help(format!("Did you mean `${{file:{rest}}}`?"))
            }
            // The form of OpenTelemetry, Loki and others.
            Some((scheme, name)) if scheme.eq_ignore_ascii_case("env") => {
                error.help(format!("A variable of the environment is written `${{{name}}}`."))
            }
            Some((name, default)) => error.help(format!("A default is written `${{{name}:-{default}}}`.")),
            None => error.help("For the characters themselves write `$${`."),
        });
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(FormatError::new("A default cannot contain another variable."));
    }
    match (variables(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => {
            keep_substituted(&value, &format!("${{{name}}}"));
            Ok(value)
        }
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(FormatError::new(format!("The variable `{name}` is not set."))
            .help(format!("Set it, or give it a default: `${{{name}:-default}}`."))),
    }
}

/// Returns the content of a file, without its last newline.
fn file(path: &str, directory: &Path) -> Result<String, FormatError> {
    let full = directory.join(path);
    let absolute = std::path::absolute(&full).unwrap_or_else(|_| full.clone());
    let shown = absolute.display();
    let failed = |error: std::io::Error| {
        FormatError::new(format!("The file `{path}` cannot be read: {error}."))
            .help(format!("The full path is `{shown}`; paths are relative to this document."))
    };
    let metadata = fs::metadata(&full).map_err(failed)?;
    if !metadata.is_file() {
        return Err(FormatError::new(format!("`{path}` is not a file.")));
    }
    if metadata.len() > LARGEST_FILE {
        return Err(FormatError::new(format!(
            "The file `{path}` is larger than 1 MiB, the limit for substitution."
        )));
    }
    let mut content = fs::read_to_string(&full).map_err(failed)?;
    if content.ends_with('\n') {
        content.pop();
        if content.ends_with('\r') {
            content.pop();
        }
    }
    Ok(content)
}
