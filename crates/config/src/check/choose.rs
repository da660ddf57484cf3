//! Chooses the branch of an enum that the user meant.

use serde_json::Value as Json;

use super::fit::{Fit, fit};
use super::schema::{Layers, constants, external_tag, internal_tag};
use super::wording::{list, subject, suggestion};
use super::{Checker, Context, Found, KeyKind};
use crate::{Diagnostic, Key, Node, Value};

/// A tag and the schema of its value.
type Tagged<'s> = (&'s str, &'s Json);

impl<'s> Checker<'s> {
    /// Checks against the branch that the user meant.
    pub(super) fn choose(
        &self,
        node: &Node,
        branches: &[Layers<'s>],
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        let names: Vec<&str> =
            branches.iter().flat_map(|layers| constants(layers)).filter_map(Json::as_str).collect();
        if let Value::Mapping(entries) = &node.value
            && self.choose_mapping(node, entries, branches, &names, context, mistakes)
        {
            return;
        }
        if node.text().is_some_and(|text| names.contains(&text)) {
            if node.as_str().is_none() {
                mistakes.retyped.insert(std::ptr::from_ref(node));
            }
            return;
        }
        let mut fitting = Vec::new();
        for wanted in [Fit::Exact, Fit::Lenient] {
            if fitting.is_empty() {
                let fits = |layers: &&Layers<'s>| fit(node, layers) == wanted;
                fitting = branches.iter().filter(fits).collect();
            }
        }
        // A text that is none of the names is reported once with all names, not once per branch.
        let free: Vec<_> =
            fitting.iter().copied().filter(|layers| !constants(layers).any(Json::is_string)).collect();
        if !free.is_empty() {
            return self.best(node, &free, context, mistakes);
        }
        let tags: Vec<&str> =
            branches.iter().filter_map(|layers| external_tag(layers)).map(|(tag, _)| tag).collect();
        match node.text() {
            Some(text) if tags.contains(&text) => {
                let mut mistake = Diagnostic::new(node.span, format!("`{text}` needs options."));
                mistake.help(format!("Write `{text}: ...`, with its options after the colon."));
                mistakes.push(mistake);
            }
            Some(_) if !names.is_empty() || !tags.is_empty() => {
                mistakes.push(self.unknown_name(node, &names, &tags, context));
            }
            _ => mistakes.push(self.wrong_type(node, branches, context)),
        }
    }

    /// Chooses by the tag of a mapping. Returns true if the branches have tags.
    fn choose_mapping(
        &self,
        node: &Node,
        entries: &[(Key, Node)],
        branches: &[Layers<'s>],
        names: &[&str],
        context: &Context<'_>,
        mistakes: &mut Found,
    ) -> bool {
        let mappings: Vec<&Layers<'s>> =
            branches.iter().filter(|layers| fit(node, layers) == Fit::Exact).collect();
        let tagged: Vec<Tagged<'s>> = mappings.iter().filter_map(|layers| external_tag(layers)).collect();
        if !tagged.is_empty() {
            if self.tagged(entries, &tagged, mistakes) {
                return true;
            }
            if mappings.len() == tagged.len() {
                let tags: Vec<&str> = tagged.iter().map(|(tag, _)| *tag).collect();
                self.untagged(node, entries, names, &tags, context, mistakes);
                return true;
            }
            let others: Vec<_> =
                mappings.into_iter().filter(|layers| external_tag(layers).is_none()).collect();
            self.best(node, &others, context, mistakes);
            return true;
        }
        if mappings.len() > 1
            && let Some((tag, marked)) = internal_tag(&mappings)
        {
            self.marked(node, tag, &marked, context, mistakes);
            return true;
        }
        false
    }

    /// Checks the value of the first key that is a tag; no other key may accompany it. Returns true if there
    /// is such a key.
    fn tagged(&self, entries: &[(Key, Node)], tagged: &[Tagged<'s>], mistakes: &mut Found) -> bool {
        let tag_of = |name: &str| tagged.iter().find(|(tag, _)| *tag == name);
        let mut known = entries.iter().filter_map(|(key, value)| Some((key, value, tag_of(&key.name)?.1)));
        let Some((first, value, schema)) = known.next() else { return false };
        let inner = Context { name: Some(&first.name), place: first.span, key: KeyKind::Option };
        self.node(value, schema, &inner, mistakes);
        for (key, _) in entries.iter().filter(|(key, _)| key.span != first.span) {
            let message = format!("`{}` cannot stand beside `{}`.", key.name, first.name);
            let mut mistake = Diagnostic::new(key.span, message);
            mistake.help(match tag_of(&key.name) {
                Some(_) => "Only one of them can be given here.".to_owned(),
                None => format!("If it belongs to `{}`, indent it further.", first.name),
            });
            mistakes.push(mistake);
        }
        true
    }

    /// Reports a mapping that has none of the tags.
    fn untagged(
        &self,
        node: &Node,
        entries: &[(Key, Node)],
        names: &[&str],
        tags: &[&str],
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        match entries {
            // `stdin:`, a variant without options.
            [(key, value)] if names.contains(&key.name.as_str()) && value.is_null() => {}
            [] => {
                let message = format!("{} is empty.", subject(context));
                let mut mistake = Diagnostic::new(self.place(node, context), message);
                mistake.help(format!("It can be {}.", list(tags.iter().copied(), "or")));
                mistakes.push(mistake);
            }
            _ => {
                for (key, _) in entries {
                    let message = match context.name {
                        Some(name) => format!("`{}` is not known in `{name}`.", key.name),
                        None => format!("`{}` is not known here.", key.name),
                    };
                    let mut mistake = Diagnostic::new(key.span, message);
                    let all = tags.iter().chain(names).copied();
                    mistake.help(suggestion(&key.name, all, "It can be", "or"));
                    mistakes.push(mistake);
                }
            }
        }
    }

    /// Checks against the branch whose constant is the value of the key `tag`.
    fn marked(
        &self,
        node: &Node,
        tag: &str,
        marked: &[(&str, &Layers<'s>)],
        context: &Context<'_>,
        mistakes: &mut Found,
    ) {
        let given = node.get(tag);
        let text = given.and_then(Node::text);
        if let Some((_, layers)) = marked.iter().find(|(name, _)| Some(*name) == text) {
            return self.layers(node, layers, context, mistakes);
        }
        let names: Vec<&str> = marked.iter().map(|(name, _)| *name).collect();
        match given {
            Some(value) => {
                let place = node.key(tag).map_or(value.span, |key| key.span);
                mistakes.push(self.unknown_name(
                    value,
                    &names,
                    &[],
                    &Context { name: Some(tag), place, key: KeyKind::Option },
                ));
            }
            None => {
                let mut mistake = self.missing(node, tag, context);
                mistake.help(format!("It is {}.", list(names.iter().copied(), "or")));
                mistakes.push(mistake);
            }
        }
    }

    /// Checks against each branch and reports the mistakes of the branch with the fewest.
    fn best(&self, node: &Node, branches: &[&Layers<'s>], context: &Context<'_>, mistakes: &mut Found) {
        let mut best: Option<Found> = None;
        for layers in branches {
            let mut found = Found::default();
            self.layers(node, layers, context, &mut found);
            if best.as_ref().is_none_or(|best| found.len() < best.len()) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.len() == 0) {
                break;
            }
        }
        if let Some(best) = best {
            mistakes.mistakes.extend(best.mistakes);
            mistakes.retyped.extend(best.retyped);
        }
    }
}
