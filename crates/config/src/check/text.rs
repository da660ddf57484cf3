//! Texts: their formats, lengths and patterns.

use serde_json::Value as Json;

use super::schema::Layers;
use super::wording::{described, subject};
use super::{Checker, Context, Found};
use crate::{Diagnostic, Node, format};

impl<'s> Checker<'s> {
    /// Checks the format, length and pattern of a text.
    pub(super) fn text(&self, node: &Node, layers: &Layers<'s>, context: &Context<'_>, mistakes: &mut Found) {
        let Some(text) = node.text() else { return };
        for layer in layers {
            if let Some(check) = layer.get("format").and_then(Json::as_str).and_then(format::registered)
                && let Err(error) = check(text)
            {
                return mistakes.push(error.in_document(node, self.source));
            }
            let length = || text.chars().count() as u64;
            if let Some(least) =
                layer.get("minLength").and_then(Json::as_u64).filter(|least| length() < *least)
            {
                let message = match least {
                    1 => format!("{} is empty.", subject(context)),
                    _ => format!("{} is too short: it needs at least {least} characters.", subject(context)),
                };
                mistakes.push(Diagnostic::new(node.span, message));
            }
            if let Some(most) = layer.get("maxLength").and_then(Json::as_u64).filter(|most| length() > *most)
            {
                let message = format!("{} is too long: the limit is {most} characters.", subject(context));
                mistakes.push(Diagnostic::new(node.span, message));
            }
            if let Some(pattern) = layer.get("pattern").and_then(Json::as_str)
                && regex::Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
            {
                let message = format!("{} has the wrong form.", subject(context));
                let mut mistake = Diagnostic::new(node.span, message);
                let described = context.name.and_then(|name| described(name, layers));
                mistake.help(
                    described.unwrap_or_else(|| format!("It must match the regular expression `{pattern}`.")),
                );
                mistakes.push(mistake);
            }
        }
    }
}
