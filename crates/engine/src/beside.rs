//! Mistakes beside wrong values. A component with a wrong value is not made, but its other options are
//! checked, so that all mistakes are shown at once.
//!
//! The wrong options are left out, and what is left is made and checked. Such a check may miss what was left
//! out. So a mistake counts only if it is at an option that is there, and names none that was left out.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use thalweg_config::{Diagnostics, Key, Mistake, Node, Span, Value, decode};

/// With more wrong values, the other options are not checked.
const MOST: usize = 16;

/// Returns the mistakes of `check` among options of which some are `wrong`.
pub(crate) fn mistakes<C, M>(options: &Node, wrong: &Diagnostics, check: impl Fn(&C) -> M) -> Vec<Mistake>
where
    C: DeserializeOwned + JsonSchema,
    M: IntoIterator<Item = Mistake>,
{
    if wrong.len() > MOST {
        return Vec::new();
    }
    let is_in = |place: Span, outer: Span| outer.start <= place.start && place.end <= outer.end;
    let is_wrong = |entry: &&(Key, Node)| {
        let (key, value) = *entry;
        wrong.iter().any(|mistake| is_in(mistake.span, key.span) || is_in(mistake.span, value.span))
    };
    let (left_out, kept): (Vec<_>, Vec<_>) = options.entries().iter().partition(is_wrong);
    if left_out.is_empty() {
        return Vec::new();
    }
    let kept = Node::new(options.span, Value::Mapping(kept.into_iter().cloned().collect()));
    let mut others = wrong.another();
    let Some(config) = decode::<C>(&kept, &mut others) else { return Vec::new() };
    let names_one = |text: &str| left_out.iter().any(|(key, _)| text.contains(&format!("`{}", key.name)));
    let counts = |mistake: &Mistake| {
        kept.get(mistake.option).is_some()
            && !names_one(&mistake.message)
            && !mistake.help.as_deref().is_some_and(names_one)
    };
    check(&config).into_iter().filter(counts).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use thalweg_config::Document;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Options {
        count: Option<u8>,
        cache: Option<String>,
        limit: Option<u8>,
        zone: Option<String>,
    }

    fn check(options: &Options) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if options.limit.is_some() && options.cache.is_none() {
            mistakes.push(Mistake::new("limit", "Nothing is limited.").help("Add `cache: FOLDER`."));
        }
        if options.zone.as_deref() == Some("nowhere") {
            mistakes.push(Mistake::new("zone", "It is no zone."));
        }
        if options.count.is_none() {
            mistakes.push(Mistake::new("count", "It is missing."));
        }
        mistakes
    }

    #[test]
    fn a_wrong_value_hides_no_mistake_of_another_option_and_makes_none() {
        for (text, expected) in [
            ("{ count: many, zone: nowhere }", &["It is no zone."][..]),
            ("{ cuont: 1, zone: nowhere }", &["It is no zone."][..]),
            ("{ cache: [a], limit: 1, count: 1 }", &[][..]),
            ("{ count: many, zone: [a] }", &[][..]),
        ] {
            let document = Document::parse("x", text).unwrap();
            let mut wrong = document.diagnostics();
            assert!(decode::<Options>(document.root(), &mut wrong).is_none(), "{text}");
            let found = mistakes(document.root(), &wrong, check);
            let found: Vec<&str> = found.iter().map(|mistake| mistake.message.as_str()).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
