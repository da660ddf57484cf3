//! Converts formatters that move values or write them in another form.

use thalweg_config::Node;

use crate::gollum::draft::{Step, Transform};
use crate::gollum::gotemplate;
use crate::gollum::gotime::Purpose;
use crate::gollum::made::{self, Made};
use crate::gollum::modulators::{Modulation, Spot, column};
use crate::gollum::settings::Settings;
use crate::gollum::text::TextPart;

impl Modulation<'_> {
    pub(super) fn rename(&mut self, spot: &Spot, settings: &Settings) {
        if spot.source == spot.target {
            let message = "`format.Move` with the same `Source` and `Target` clears the value, as in gollum.";
            self.report.remark(settings.span, message);
            return self.delete(spot, settings);
        }
        let mut options = Made::new(settings.span);
        options.text(&spot.source, &spot.target, settings.at("Target"));
        if spot.source != "payload" && spot.target != "payload" {
            options.text(&format!("{}.*", spot.source), format!("{}.*", spot.target), settings.at("Target"));
        }
        self.transform("rename", options, settings.span);
        if spot.source == "payload" {
            let cleared = Spot { target: "payload".to_owned(), skip_empty: false, ..spot.clone() };
            self.text(Vec::new(), &cleared);
        }
        self.skips_nothing(spot, settings);
    }

    /// Reports a `SkipIfEmpty` without effect: the transform does nothing with empty values anyway.
    pub(super) fn skips_nothing(&mut self, spot: &Spot, settings: &Settings) {
        if spot.skip_empty {
            let message = format!("`SkipIfEmpty` has no effect for `{}`.", settings.kind.name);
            self.report.remark(settings.at("SkipIfEmpty"), message);
        }
    }

    pub(super) fn delete(&mut self, spot: &Spot, settings: &Settings) {
        if spot.target == "payload" {
            return self.text(Vec::new(), &Spot { skip_empty: false, ..spot.clone() });
        }
        let names = [spot.target.clone(), format!("{}.*", spot.target)];
        let names = names.into_iter().map(|name| made::text(name, settings.at("Target")));
        let names = made::list(names.collect(), settings.span);
        self.push(Step::Transform(Transform::new("drop", names, settings.span)));
        self.skips_nothing(spot, settings);
    }

    pub(super) fn copy(&mut self, spot: &Spot, settings: &Settings) {
        let mode = settings.text_or("Mode", "replace").to_ascii_lowercase();
        let separator = settings.text("Separator").filter(|separator| !separator.is_empty());
        if !matches!(mode.as_str(), "replace" | "append" | "prepend") {
            let message = format!("`{mode}` is not a mode of `format.Copy`.");
            self.report
                .mistake(settings.at("Mode"), message)
                .help("There are `replace`, `append` and `prepend`.");
        }
        if mode == "replace" && spot.source == spot.target {
            self.report.remark(
                settings.span,
                "`format.Copy` has the same `Source` and `Target`, so it is left out.",
            );
            return;
        }
        let mut options = Made::new(settings.span);
        options.text("from", &spot.source, settings.at("Source"));
        options.text("into", &spot.target, settings.at("Target"));
        if mode != "replace" {
            options.text("existing", mode, settings.at("Mode"));
            if let Some(separator) = separator {
                options.text("separator", separator, settings.at("Separator"));
            }
        }
        if spot.skip_empty {
            options.flag("skip_empty", true, settings.at("SkipIfEmpty"));
        }
        self.transform("copy", options, settings.span);
    }

    pub(super) fn copied(&mut self, from: &str, into: &str, settings: &Settings) {
        if from != into {
            let mut options = Made::new(settings.span);
            options.text("from", from, settings.span).text("into", into, settings.span);
            self.transform("copy", options, settings.span);
        }
    }

    pub(in crate::gollum) fn dropped(&mut self, name: &str, settings: &Settings) {
        let names = made::list(vec![made::text(name, settings.span)], settings.span);
        self.push(Step::Transform(Transform::new("drop", names, settings.span)));
    }

    pub(super) fn cast(&mut self, spot: &Spot, settings: &Settings) {
        let wanted = settings.text_or("ToType", "string").to_ascii_lowercase();
        let kind = match wanted.as_str() {
            "string" | "bytes" => "text",
            "int" => "int",
            "float" => "float",
            other => {
                let message = format!("`{other}` is not a type for `format.Cast`.");
                self.report
                    .mistake(settings.at("ToType"), message)
                    .help("There are `string`, `bytes`, `int` and `float`.");
                return;
            }
        };
        self.skips_nothing(spot, settings);
        if kind == "text" && spot.target == "payload" {
            return self.copied(&spot.source, &spot.target, settings);
        }
        // The payload is always bytes. Casting it in a helper column only checks that it is a number.
        let helper = "number_of_payload";
        let column = if spot.target == "payload" { helper } else { spot.target.as_str() };
        self.copied(&spot.source, column, settings);
        let mut options = Made::new(settings.span);
        options.text(column, kind, settings.at("ToType"));
        self.transform("cast", options, settings.span);
        if spot.target == "payload" {
            self.copied(helper, "payload", settings);
            self.dropped(helper, settings);
        }
    }

    pub(super) fn convert_time(&mut self, spot: &Spot, settings: &Settings) {
        let (from_name, to_name) = (
            if settings.has("FromFormat") { "FromFormat" } else { "From" },
            if settings.has("ToFormat") { "ToFormat" } else { "To" },
        );
        let from = settings.text_or(from_name, "");
        let to = settings.text_or(to_name, "");
        let from = if from.is_empty() {
            "unix".to_owned()
        } else {
            self.time_format(&from, from_name, settings, Purpose::Read).unwrap_or_default()
        };
        let to = if to.is_empty() {
            "unix".to_owned()
        } else {
            self.time_format(&to, to_name, settings, Purpose::Write).unwrap_or_default()
        };
        self.times(spot, &from, &to, settings);
    }

    /// Adds transforms that convert a time from one format to another.
    pub(in crate::gollum) fn times(&mut self, spot: &Spot, from: &str, to: &str, settings: &Settings) {
        let helper = if spot.target == "payload" { "time_of_payload" } else { spot.target.as_str() };
        let mut options = Made::new(settings.span);
        options.text("field", &spot.source, settings.span);
        if spot.source != helper {
            options.text("into", helper, settings.span);
        }
        options.text("format", from, settings.span);
        self.transform("parse_timestamp", options, settings.span);
        let mut options = Made::new(settings.span);
        options.text("field", helper, settings.span);
        if spot.target != helper {
            options.text("into", &spot.target, settings.span);
        }
        options.text("format", to, settings.span);
        self.transform("format_timestamp", options, settings.span);
        if spot.target == "payload" {
            self.dropped(helper, settings);
        }
    }

    pub(super) fn write_json(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = Made::new(settings.span);
        options.text("format", "json", settings.span).flag("nested", true, settings.span);
        let root = self.column(settings, "Root");
        if let Some(root) = &root {
            options.text("root", root, settings.at("Root"));
        }
        let mut ignored = Vec::new();
        for (path, span) in settings.list("Ignore") {
            ignored.push(made::text(column(&path, span, self.report), span));
        }
        if !ignored.is_empty() {
            options.put("exclude", made::list(ignored, settings.at("Ignore")));
        }
        self.encoded(options, spot, settings);
    }

    pub(super) fn encoded(&mut self, mut options: Made, spot: &Spot, settings: &Settings) {
        if spot.target != "payload" {
            options.text("into", &spot.target, settings.at("Target"));
        }
        if spot.skip_empty {
            if spot.source != "payload" {
                options.text("field", &spot.source, settings.at("Source"));
            }
            options.flag("skip_empty", true, settings.at("SkipIfEmpty"));
        }
        self.transform("encode", options, settings.span);
    }

    pub(super) fn write_csv(&mut self, spot: &Spot, settings: &Settings) {
        let keys = settings.list("Keys");
        if keys.is_empty() {
            self.remark_without(settings, "Keys", "every message becomes empty");
            settings.idle(&["Separator", "KeepLastSeparator"], "without `Keys`", self.report);
            return self.text(Vec::new(), spot);
        }
        let separator = settings.text_or("Separator", ",");
        let trailing = settings.flag("KeepLastSeparator").unwrap_or(false);
        let columns: Vec<Node> =
            keys.iter().map(|(path, span)| made::text(self.read_path(path, *span), *span)).collect();
        // gollum never quotes a value, so this is a text and no CSV.
        let mut parts = Vec::new();
        for (index, name) in columns.iter().enumerate() {
            if index > 0 && !separator.is_empty() {
                parts.push(TextPart::Literal(separator.clone()));
            }
            parts.push(TextPart::Column(name.as_str().unwrap_or_default().to_owned()));
        }
        if trailing && !separator.is_empty() {
            parts.push(TextPart::Literal(separator));
        }
        self.text(parts, spot);
    }

    pub(super) fn template(&mut self, spot: &Spot, settings: &Settings) {
        let template = settings.text_or("Template", "");
        match gotemplate::minijinja(&template, "") {
            Ok(mut template) => {
                if spot.skip_empty {
                    // An empty source leaves the target as it is.
                    let source = if spot.source == "payload" { "payload" } else { "whole_message" };
                    let target = &spot.target;
                    template =
                        format!("{{% if {source} %}}{template}{{% else %}}{{{{ {target} }}}}{{% endif %}}");
                }
                let mut options = Made::new(settings.span);
                options.text("template", template, settings.at("Template"));
                if spot.source != "payload" {
                    options.text("root", &spot.source, settings.at("Source"));
                }
                if spot.target != "payload" {
                    options.text("into", &spot.target, settings.at("Target"));
                }
                self.transform("template", options, settings.span);
            }
            Err(wrong) => {
                let part = template.get(wrong.at).filter(|part| !part.is_empty());
                let message = match part {
                    Some(part) => format!("`{part}` in this template: {}", lower_first(&wrong.message)),
                    None => wrong.message,
                };
                self.report
                    .mistake(settings.at("Template"), message)
                    .help("All of Go's templates is understood but templates that contain themselves.");
            }
        }
    }

    pub(super) fn extract(&mut self, spot: &Spot, settings: &Settings) {
        let pattern = settings.raw_text("Expression").unwrap_or_else(|| "(.*)".to_owned());
        let posix = settings.flag("Posix").unwrap_or(true);
        if self.is_pattern(&pattern, settings.at("Expression")) && posix && pattern.contains(['|', '?']) {
            let message = "The first alternative that matches is used here; with `Posix`, gollum used the longest match.";
            self.report.remark(settings.at("Expression"), message);
        }
        let mut options = spot.options(settings);
        options.text("pattern", &pattern, settings.at("Expression"));
        let template = known_groups(&settings.text_or("Template", "${1}"), &pattern);
        options.text("template", template, settings.at("Template"));
        options.text("no_match", "empty", settings.span);
        self.transform("extract", options, settings.span);
    }
}

/// Removes the groups from a template that a pattern does not have. Go writes nothing for them.
fn known_groups(template: &str, pattern: &str) -> String {
    let Ok(pattern) = regex::Regex::new(pattern) else { return template.to_owned() };
    let is_known = |group: &str| match group.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|name| name == group),
    };
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let word = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, length) = match (after.chars().next(), after.strip_prefix('{')) {
            (Some('$'), _) => ("", 1),
            (_, Some(inside)) => inside.find('}').map_or(("", 0), |end| (&inside[..end], end + 2)),
            _ => (&after[..word(after)], word(after)),
        };
        if name.is_empty() || is_known(name) {
            out.push_str(&rest[at..at + 1 + length]);
        }
        rest = &after[length..];
    }
    out + rest
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}
