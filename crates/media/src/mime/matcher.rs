//! Lists of types that are allowed.

use super::types::{ALL, canonical, essence};

/// The input is not the name of a MIME type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a MIME type; {advice}")]
pub struct NotAType {
    /// The input.
    pub given: String,
    advice: String,
}

/// A list of types that are allowed.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
enum Pattern {
    Any,
    /// All types of a family; the name includes the slash.
    Family(String),
    Is(String),
}

impl Matcher {
    /// Parses types: `image/png`, `image/*`, `*/*`. Parameters and upper or lower case are ignored, and
    /// aliases of a type are accepted: `image/jpg` is `image/jpeg`.
    ///
    /// # Errors
    /// Names the first entry that is not a MIME type.
    pub fn new<S: AsRef<str>>(types: impl IntoIterator<Item = S>) -> Result<Self, NotAType> {
        let patterns =
            types.into_iter().map(|given| Pattern::read(given.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// True if the list contains the type; its parameters are ignored. An empty list matches nothing.
    pub fn matches(&self, mime: &str) -> bool {
        let name = essence(mime);
        let name = canonical(name).map_or(name, |known| known.name);
        self.patterns.iter().any(|pattern| match pattern {
            Pattern::Any => true,
            Pattern::Family(family) => {
                name.get(..family.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(family))
            }
            Pattern::Is(known) => known.eq_ignore_ascii_case(name),
        })
    }
}

impl Pattern {
    fn read(given: &str) -> Result<Self, NotAType> {
        let name = essence(given);
        let wrong = || NotAType { given: given.to_owned(), advice: advice(name) };
        let (family, kind) = name.split_once('/').ok_or_else(wrong)?;
        if (family, kind) == ("*", "*") {
            return Ok(Self::Any);
        }
        if !is_word(family) {
            return Err(wrong());
        }
        match kind {
            "*" => Ok(Self::Family(format!("{family}/"))),
            kind if is_word(kind) => {
                Ok(Self::Is(canonical(name).map_or_else(|| name.to_owned(), |known| known.name.to_owned())))
            }
            _ => Err(wrong()),
        }
    }
}

/// True if all characters are allowed in a name, by RFC 6838.
fn is_word(word: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    !word.is_empty() && word.len() <= 127 && word.bytes().all(is_allowed)
}

/// Returns a suggestion: a type with this name after its slash, or with this extension.
fn advice(name: &str) -> String {
    let short = name.trim_start_matches(['*', '.', '/']).trim_end_matches("/*");
    let families = ["application", "audio", "font", "image", "model", "text", "video"];
    if let Some(family) = families.into_iter().find(|family| family.eq_ignore_ascii_case(short)) {
        return format!("did you mean `{family}/*`?");
    }
    let kind_of = |name: &'static str| name.split_once('/').map_or(name, |(_, kind)| kind);
    let found = ALL
        .iter()
        .find(|known| kind_of(known.name).eq_ignore_ascii_case(short))
        .or_else(|| ALL.iter().find(|known| !short.is_empty() && known.extension.eq_ignore_ascii_case(short)))
        .or_else(|| {
            ALL.iter()
                .find(|known| known.aliases.iter().any(|alias| kind_of(alias).eq_ignore_ascii_case(short)))
        });
    match found {
        Some(known) => format!("did you mean `{}`?", known.name),
        None => "write it as `image/png`, or `image/*` for all types of a family".to_owned(),
    }
}
