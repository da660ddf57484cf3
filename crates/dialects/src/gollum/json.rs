//! Converts the JSON formatters of v0.4 and v0.5, each of which parsed a message and wrote it again.
//!
//! Here JSON is parsed once. If `ExtractJSON` follows `ProcessJSON`, the object between them is never
//! written.

use super::draft::{Parsed, Step, Transform};
use super::gotime::{Purpose, strftime};
use super::made::{self, Made};
use super::modulators::{Modulation, Spot};
use super::settings::{Settings, unescape};

impl Modulation<'_> {
    fn parse_json(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = Spot { target: spot.source.clone(), ..spot.clone() }.options(settings);
        options.flag("flatten", true, settings.span);
        self.transform("parse_json", options, settings.span);
    }

    pub(super) fn extract_json(&mut self, spot: &Spot, settings: &Settings) {
        let field = settings.text_or("Field", "");
        if field.is_empty() {
            let message = "`format.ExtractJSON` does not name the field to extract.";
            self.report.mistake(settings.span, message).help("Add `Field`.");
        }
        if settings.number("Precision").is_some_and(|digits| digits != 0) {
            let message = "Numbers are written as they are in the JSON, regardless of `Precision`.";
            self.report
                .mistake(settings.at("Precision"), message)
                .help("Leave it out, or use `format.Template`.");
        }
        let parsed = match self.done.steps.last() {
            Some(Step::Transform(last)) => {
                last.writes_parsed.clone().filter(|parsed| parsed.column == spot.source)
            }
            _ => None,
        };
        match &parsed {
            Some(_) => {
                self.done.steps.pop();
            }
            None => self.parse_json(spot, settings),
        }
        let field = super::modulators::column(&field, settings.at("Field"), self.report);
        let mut options = Made::new(settings.span);
        options.text("from", field, settings.at("Field")).text("into", &spot.target, settings.at("Target"));
        self.transform("copy", options, settings.span);
        if parsed.is_some_and(|parsed| parsed.trims) {
            let options = Spot { source: spot.target.clone(), skip_empty: false, ..spot.clone() };
            let mut options = options.options(settings);
            options.text("characters", " ", settings.span);
            self.transform("trim", options, settings.span);
        }
    }

    pub(super) fn process_json(&mut self, spot: &Spot, settings: &Settings) {
        let trims = settings.flag("TrimValues").unwrap_or(true);
        let database = settings.text("GeoIPFile").filter(|file| !file.is_empty());
        self.parse_json(spot, settings);
        for (directive, span) in settings.list("Directives") {
            let directive = directive.replace("\\:", "\r");
            let parts: Vec<String> = directive.split(':').map(|part| part.replace('\r', ":")).collect();
            let [key, operation, parameters @ ..] = parts.as_slice() else {
                let message = format!("`{directive}` is not a directive.");
                self.report.mistake(span, message).help("Write `field:operation:parameter`.");
                continue;
            };
            let parameters: Vec<String> = parameters.iter().map(|parameter| unescape(parameter)).collect();
            let settings = settings.placed(span);
            self.directive(key, &operation.to_ascii_lowercase(), &parameters, database.as_deref(), &settings);
        }
        let mut options = Made::new(settings.span);
        options.text("format", "json", settings.span).flag("nested", true, settings.span);
        if spot.target != "payload" {
            options.text("into", &spot.target, settings.at("Target"));
        }
        let mut transform = Transform::new("encode", options.done(), settings.span);
        transform.writes_parsed = Some(Parsed { trims, column: spot.target.clone() });
        if trims {
            transform.notes.push("gollum also trimmed blanks off the values (`TrimValues`): add `trim` for those where it matters.".into());
        }
        self.push(Step::Transform(transform));
    }

    fn directive(
        &mut self,
        key: &str,
        operation: &str,
        parameters: &[String],
        database: Option<&str>,
        settings: &Settings,
    ) {
        let span = settings.span;
        let on_key = || {
            let mut options = Made::new(span);
            options.text("field", key, span);
            options
        };
        let list =
            |names: &[String]| made::list(names.iter().map(|name| made::text(name, span)).collect(), span);
        match (operation, parameters) {
            ("rename", [name]) => {
                let mut options = Made::new(span);
                options.text(key, name, span).text(&format!("{key}.*"), format!("{name}.*"), span);
                self.transform("rename", options, span);
            }
            ("remove", []) => {
                let names = list(&[key.to_owned(), format!("{key}.*")]);
                self.push(Step::Transform(Transform::new("drop", names, span)));
            }
            ("split", [delimiter, names @ ..]) if !names.is_empty() => {
                let mut options = on_key();
                options.text("delimiter", delimiter, span).put("fields", list(names));
                self.transform("split_fields", options, span);
            }
            ("replace", [search, with]) => {
                let mut options = on_key();
                options.text("search", search, span).text("with", with, span);
                self.transform("replace", options, span);
            }
            ("trim", [] | [_]) => {
                let mut options = on_key();
                options.text("characters", parameters.first().map_or(" \t", String::as_str), span);
                self.transform("trim", options, span);
            }
            ("time", [from, to]) => {
                if let (Some(from), Some(to)) =
                    (self.layout(from, Purpose::Read, settings), self.layout(to, Purpose::Write, settings))
                {
                    self.times(&at(key, settings), &from, &to, settings);
                }
            }
            ("unixtimestamp", [unit, to]) => {
                let unit = match unit.as_str() {
                    "s" => "unix",
                    "ms" => "unix_ms",
                    "ns" => "unix_ns",
                    other => {
                        let message = format!("`{other}` is not a unit of time here.");
                        self.report.mistake(span, message).help("There are `s`, `ms` and `ns`.");
                        return;
                    }
                };
                if let Some(to) = self.layout(to, Purpose::Write, settings) {
                    self.times(&at(key, settings), unit, &to, settings);
                }
            }
            ("flatten", []) => {}
            ("flatten", [separator]) if separator == "." => {}
            ("flatten", [separator]) => {
                let mut options = Made::new(span);
                options.put("fields", list(&[key.to_owned()])).text("separator", separator, span);
                self.transform("flatten", options, span);
            }
            ("agent", names) => {
                let all = [
                    "mozilla",
                    "platform",
                    "os",
                    "localization",
                    "engine",
                    "engine_version",
                    "browser",
                    "version",
                ];
                let names = if names.is_empty() { all.map(str::to_owned).to_vec() } else { names.to_vec() };
                let mut options = on_key();
                options.text("prefix", format!("{key}_"), span).put("fields", list(&names));
                self.transform("parse_user_agent", options, span);
            }
            ("geoip", names) => {
                let Some(database) = database else {
                    self.report.remark(span, "Without `GeoIPFile`, `geoip` does nothing, as in gollum.");
                    return;
                };
                let all = ["country", "city", "continent", "timezone", "proxy", "location"];
                let names = if names.is_empty() { all.map(str::to_owned).to_vec() } else { names.to_vec() };
                let mut options = on_key();
                options.text("database", database, span).text("prefix", format!("{key}_"), span);
                options.put("fields", list(&names));
                self.transform("geoip", options, span);
            }
            ("remove" | "pick" | "ip", _) => {
                let message = format!(
                    "The directive `{operation}` works on the elements of a list, and has no equivalent here."
                );
                self.report.mistake(span, message).help(
                    "Use the transform `set` with an expression such as `list[0]` in a converted file.",
                );
            }
            ("rename" | "split" | "replace" | "trim" | "time" | "unixtimestamp" | "flatten", _) => {
                self.report
                    .mistake(span, format!("`{operation}` does not accept this number of parameters."));
            }
            _ => {
                let known = [
                    "rename",
                    "remove",
                    "split",
                    "replace",
                    "trim",
                    "time",
                    "unixtimestamp",
                    "flatten",
                    "agent",
                    "geoip",
                ];
                let message = format!("There is no directive `{operation}`.");
                self.report.unknown(span, message, operation, known, "");
            }
        }
    }

    fn layout(&mut self, layout: &str, purpose: Purpose, settings: &Settings) -> Option<String> {
        match strftime(layout, purpose) {
            Ok(format) => Some(format),
            Err(wrong) => {
                let message = format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
                self.report.mistake(settings.span, message);
                None
            }
        }
    }
}

fn at(key: &str, settings: &Settings) -> Spot {
    Spot { source: key.to_owned(), target: key.to_owned(), skip_empty: false, span: settings.span }
}
