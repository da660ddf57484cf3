//! Converts formatters of v0.4 and v0.5 that have no equivalent, to the transform `gollum`.

use thalweg_config::{Node, Span};

use crate::gollum::draft::{Step, Transform};
use crate::gollum::gotime::{Purpose, strftime};
use crate::gollum::made::{self, Made};
use crate::gollum::modulators::{Modulation, Spot};
use crate::gollum::settings::{Settings, unescape};
use crate::gollum::text::TextPart;
use crate::gollum::version::Version;

/// A directive of `format.ProcessJSON` or `format.ProcessTSV`, taken apart.
struct Directive {
    /// The member's name, or the column's number.
    place: String,
    action: String,
    parameters: Vec<String>,
    span: Span,
}

impl Modulation<'_> {
    /// Adds the transform `gollum` with a formatter.
    fn former(&mut self, name: &'static str, formatter: Made, spot: &Spot, settings: &Settings) {
        let span = settings.span;
        let mut options = spot.options(settings);
        options.put("formatter", made::component(name, span, formatter.done()));
        match (self.place.version, name) {
            (Version::V04, "collectd_to_influx") => {
                options.text("on_error", "clear", span);
            }
            (Version::V04, _) | (_, "process_tsv") => {
                options.text("on_error", "keep", span);
            }
            _ => {}
        }
        self.transform("gollum", options, span);
    }

    pub(super) fn of_json(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = Made::new(settings.span);
        match settings.kind.name {
            "format.ProcessJSON" => self.process_json(spot, settings),
            "format.ExtractJSON" => {
                options.text("member", settings.text_or("Field", ""), settings.at("Field"));
                let digits = settings.number("Precision");
                if let Some(digits) = digits.filter(|digits| *digits >= 0) {
                    options.number("precision", digits, settings.at("Precision"));
                }
                let trims = settings.flag("TrimValues").unwrap_or(true);
                if self.place.version > Version::V04 {
                    if trims {
                        options.flag("trim", true, settings.at("TrimValues"));
                    } else {
                        let message = "With `TrimValues: false`, gollum 0.5 writes an empty text instead of the value. Here the value is written as it is.";
                        self.report.remark(settings.at("TrimValues"), message);
                    }
                }
                self.former("extract_json", options, spot, settings);
            }
            "format.JSONToArray" => {
                put_text(&mut options, "separator", "Separator", settings);
                options.put("fields", texts("Fields", settings));
                self.former("json_to_array", options, spot, settings);
            }
            "format.SplitToJSON" => {
                put_text(&mut options, "separator", "SplitBy", settings);
                options.put("keys", texts("Keys", settings));
                if let Some(keeps) = settings.flag("KeepJSON") {
                    options.flag("keep_json", keeps, settings.at("KeepJSON"));
                }
                self.former("split_to_json", options, spot, settings);
            }
            "format.JSONToInflux10" => {
                put_text(&mut options, "measurement", "Measurement", settings);
                put_text(&mut options, "time", "TimeField", settings);
                if let Some(layout) = settings.text("TimeFormat").filter(|layout| layout != "unix")
                    && let Some(format) = self.layout(&layout, Purpose::Read, settings.at("TimeFormat"))
                {
                    options.text("format", format, settings.at("TimeFormat"));
                }
                for (name, option) in [("Tags", "tags"), ("Ignore", "ignore")] {
                    if settings.has(name) {
                        options.put(option, texts(name, settings));
                    }
                }
                self.former("json_to_influx", options, spot, settings);
            }
            _ => self.text_to_json(spot, settings),
        }
    }

    pub(super) fn collectd(&mut self, version: &str, spot: &Spot, settings: &Settings) {
        let mut options = Made::new(settings.span);
        options.text("version", version, settings.span);
        self.former("collectd_to_influx", options, spot, settings);
    }

    /// `format.Trim` with separators, as v0.5 had it.
    pub(super) fn trim_to_separators(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = Made::new(settings.span);
        put_text(&mut options, "left", "LeftSeparator", settings);
        put_text(&mut options, "right", "RightSeparator", settings);
        for (name, option) in [("LeftOffset", "left_offset"), ("RightOffset", "right_offset")] {
            if let Some(number) = settings.number(name).filter(|number| *number > 0) {
                options.number(option, number, settings.at(name));
            }
        }
        self.former("trim", options, spot, settings);
    }

    pub(super) fn trim_to_bounds(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = Made::new(settings.span);
        put_text(&mut options, "left", "LeftBounds", settings);
        put_text(&mut options, "right", "RightBounds", settings);
        for (name, option) in [("LeftOffset", "left_offset"), ("RightOffset", "right_offset")] {
            if let Some(number) = settings.number(name).filter(|number| *number > 0) {
                options.number(option, number, settings.at(name));
            }
        }
        self.former("trim_to_bounds", options, spot, settings);
    }

    fn process_json(&mut self, spot: &Spot, settings: &Settings) {
        if settings.list("Directives").is_empty() {
            let message = "Without `Directives`, `format.ProcessJSON` does nothing, as in gollum.";
            self.report.remark(settings.span, message);
            settings.idle(&["TrimValues", "GeoIPFile"], "without `Directives`", self.report);
            return self.copied(&spot.source, &spot.target, settings);
        }
        let directives = self.directives(settings);
        let directives = directives.into_iter().filter_map(|directive| self.of_member(directive));
        let mut options = Made::new(settings.span);
        options.put("directives", made::list(directives.collect(), settings.at("Directives")));
        if settings.flag("TrimValues") == Some(false) {
            options.flag("trim_values", false, settings.at("TrimValues"));
        }
        if let Some(file) = settings.text("GeoIPFile").filter(|file| !file.is_empty()) {
            options.text("geoip_database", file, settings.at("GeoIPFile"));
        }
        self.former("process_json", options, spot, settings);
    }

    pub(super) fn process_tsv(&mut self, spot: &Spot, settings: &Settings) {
        let directives = self.directives(settings);
        let directives = directives.into_iter().filter_map(|directive| self.of_column(directive));
        let mut options = Made::new(settings.span);
        options.put("directives", made::list(directives.collect(), settings.at("Directives")));
        put_text(&mut options, "delimiter", "Delimiter", settings);
        if settings.flag("QuotedValues") == Some(true) {
            options.flag("quoted", true, settings.at("QuotedValues"));
        }
        self.former("process_tsv", options, spot, settings);
    }

    /// Takes directives apart. `\:` is a colon in a parameter.
    fn directives(&mut self, settings: &Settings) -> Vec<Directive> {
        let mut directives = Vec::new();
        for (text, span) in settings.list("Directives") {
            let hidden = text.replace("\\:", "\r");
            let mut parts = hidden.split(':').map(|part| part.replace('\r', ":"));
            let (Some(place), Some(action)) = (parts.next(), parts.next()) else {
                let message = format!("`{text}` is not a directive, so it does nothing, as in gollum.");
                self.report.remark(span, message);
                continue;
            };
            let parameters = parts.map(|part| unescape(&part)).collect();
            directives.push(Directive { place, action: action.to_ascii_lowercase(), parameters, span });
        }
        directives
    }

    fn of_member(&mut self, directive: Directive) -> Option<Node> {
        let count = directive.parameters.len();
        let fits = match directive.action.as_str() {
            "rename" => count == 1,
            "remove" | "agent" | "geoip" => true,
            "time" | "unixtimestamp" | "pick" | "replace" => count == 2,
            "split" => count > 1,
            "trim" | "flatten" => count < 2,
            "ip" => count == 0,
            _ => false,
        };
        let units = ["s", "ms", "ns"];
        let is_unit = directive.parameters.first().is_some_and(|unit| units.contains(&unit.as_str()));
        if !fits || directive.action == "unixtimestamp" && !is_unit {
            return self.does_nothing(&directive);
        }
        let mut options = Made::new(directive.span);
        options.text("member", &directive.place, directive.span);
        self.action(options, directive)
    }

    fn of_column(&mut self, mut directive: Directive) -> Option<Node> {
        let count = directive.parameters.len();
        let fits = match directive.action.as_str() {
            "time" | "replace" => count == 2,
            "prefix" | "postfix" => count == 1,
            "trim" => count < 2,
            "quote" | "remove" | "agent" => true,
            _ => false,
        };
        let Ok(column) = directive.place.parse::<u32>() else {
            let message = format!(
                "`{}` is not the number of a column, so the directive does nothing.",
                directive.place
            );
            self.report.remark(directive.span, message);
            return None;
        };
        if !fits {
            return self.does_nothing(&directive);
        }
        let mut options = Made::new(directive.span);
        options.number("column", i64::from(column), directive.span);
        // gollum ignores further texts behind these.
        if matches!(directive.action.as_str(), "quote" | "remove") {
            directive.parameters.clear();
        }
        self.action(options, directive)
    }

    /// Remarks that a directive has no effect: gollum ignores unknown actions, and known ones with another
    /// number of parameters.
    fn does_nothing(&mut self, directive: &Directive) -> Option<Node> {
        let Directive { action, parameters, span, .. } = directive;
        let message = match parameters.len() {
            1 => format!(
                "There is no directive `{action}` with 1 parameter, so it does nothing, as in gollum."
            ),
            count => {
                format!(
                    "There is no directive `{action}` with {count} parameters, so it does nothing, as in gollum."
                )
            }
        };
        self.report.remark(*span, message);
        None
    }

    /// Completes a directive with its action and parameters.
    fn action(&mut self, mut options: Made, directive: Directive) -> Option<Node> {
        let Directive { action, mut parameters, span, .. } = directive;
        options.text("action", &action, span);
        let mut length = None;
        match (action.as_str(), parameters.as_mut_slice()) {
            ("time", [from, to]) => {
                // gollum reads as many bytes of the value as the layout has.
                length = i64::try_from(from.len()).ok();
                *from = self.layout(from, Purpose::Read, span)?;
                *to = self.layout(to, Purpose::Write, span)?;
            }
            ("unixtimestamp", [_, to]) => *to = self.layout(to, Purpose::Write, span)?,
            _ => {}
        }
        if !parameters.is_empty() {
            let parameters = parameters.into_iter().map(|parameter| made::text(parameter, span)).collect();
            options.put("parameters", made::list(parameters, span));
        }
        if let Some(length) = length {
            options.number("length", length, span);
        }
        Some(options.done())
    }

    fn layout(&mut self, layout: &str, purpose: Purpose, span: Span) -> Option<String> {
        match strftime(layout, purpose) {
            Ok(format) => Some(format),
            Err(wrong) => {
                let message = format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
                self.report.mistake(span, message);
                None
            }
        }
    }

    fn text_to_json(&mut self, spot: &Spot, settings: &Settings) {
        if settings.list("Directives").is_empty() {
            let names = ["StartState", "TimestampRead", "UnixTimestampRead", "TimestampWrite"];
            settings.idle(&names, "without `Directives`", self.report);
            self.remark_without(settings, "Directives", "every message becomes `{}`");
            return self.text(vec![TextPart::Literal("{}".to_owned())], spot);
        }
        let mut options = Made::new(settings.span);
        let transitions = settings.list("Directives");
        let transitions = transitions.iter().filter_map(|(text, span)| self.transition(text, *span));
        options.put("directives", made::list(transitions.collect(), settings.at("Directives")));
        put_text(&mut options, "start", "StartState", settings);
        let layout = settings.text("TimestampRead").filter(|layout| !layout.is_empty());
        let unit = settings.text("UnixTimestampRead").filter(|unit| !unit.is_empty());
        let read = match (layout, unit.as_deref()) {
            (Some(layout), _) => self.layout(&layout, Purpose::Read, settings.at("TimestampRead")),
            (None, None) => None,
            (None, Some("s")) => Some("unix".to_owned()),
            (None, Some(unit @ ("ms" | "ns"))) => Some(format!("unix_{unit}")),
            (None, Some(other)) => {
                let message = format!("`{other}` is not a unit of time here.");
                self.report
                    .mistake(settings.at("UnixTimestampRead"), message)
                    .help("There are `s`, `ms` and `ns`.");
                None
            }
        };
        if let Some(format) = read {
            options.text("read_time", format, settings.at("TimestampRead"));
        }
        if let Some(layout) = settings.text("TimestampWrite")
            && let Some(format) = self.layout(&layout, Purpose::Write, settings.at("TimestampWrite"))
        {
            options.text("write_time", format, settings.at("TimestampWrite"));
        }
        self.former("text_to_json", options, spot, settings);
    }

    /// Reads `State:Token:NextState:Flags:Function`.
    fn transition(&mut self, text: &str, span: Span) -> Option<Node> {
        let hidden =
            text.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t").replace("\\:", "\x08");
        let parts: Vec<String> = hidden.split(':').map(|part| part.replace('\x08', ":")).collect();
        let [state, token, next, flags, function] = parts.as_slice() else {
            let message = format!("`{text}` is not a directive: it does not have five parts.");
            self.report.mistake(span, message).help("Write `State:Token:NextState:Flags:Function`.");
            return None;
        };
        let mut options = Made::new(span);
        options.text("state", state.trim(), span).text("token", token, span);
        if !next.trim().is_empty() {
            options.text("next", next.trim(), span);
        }
        for flag in ["continue", "append", "include", "push", "pop"] {
            if flags.split(',').any(|given| given.trim().eq_ignore_ascii_case(flag)) {
                options.flag(flag, true, span);
            }
        }
        let actions: Vec<Node> =
            actions(function.trim()).iter().map(|name| made::text(*name, span)).collect();
        if actions.is_empty() && !function.trim().is_empty() {
            let message =
                format!("There is no function `{}`, so it does nothing, as in gollum.", function.trim());
            self.report.remark(span, message);
        }
        if !actions.is_empty() {
            options.put("actions", made::list(actions, span));
        }
        Some(options.done())
    }

    /// `format.GrokToJSON`: fields below a helper column, written as JSON.
    pub(super) fn grok_to_json(&mut self, spot: &Spot, settings: &Settings) {
        const HELPER: &str = "json_of_grok";
        let below = Spot { target: HELPER.to_owned(), ..spot.clone() };
        self.grok(&below, settings);
        let mut options = Made::new(settings.span);
        options.text("format", "json", settings.span).flag("nested", true, settings.span);
        options.text("root", HELPER, settings.span);
        if spot.target != "payload" {
            options.text("into", &spot.target, settings.at("Target"));
        }
        self.transform("encode", options, settings.span);
        self.dropped_with_members(HELPER, settings);
        // Sorts the members and escapes texts as Go does.
        let mut process = Made::new(settings.span);
        process.put("directives", made::list(Vec::new(), settings.span)).flag(
            "trim_values",
            false,
            settings.span,
        );
        let written = Spot { source: spot.target.clone(), skip_empty: false, ..spot.clone() };
        self.former("process_json", process, &written, settings);
    }

    /// `format.TemplateJSON`: fields below a helper column, rendered by a template.
    pub(super) fn template_json(&mut self, spot: &Spot, settings: &Settings) {
        const HELPER: &str = "json_of_template";
        let below = Spot { target: HELPER.to_owned(), skip_empty: false, ..spot.clone() };
        let mut options = below.options_with_prefix(settings, "");
        options.flag("flatten", true, settings.span);
        self.transform("parse_json", options, settings.span);
        self.template(&Spot { source: HELPER.to_owned(), ..spot.clone() }, settings);
        self.dropped_with_members(HELPER, settings);
        if self.place.version == Version::V04 {
            let message = "A message that is not JSON leaves by the errors output. gollum 0.4 passes it on.";
            self.report.remark(settings.span, message);
        }
    }

    /// `format.Serialize`: the whole message in gollum's form.
    pub(super) fn serialize(&mut self, spot: &Spot, settings: &Settings) {
        let is_old = self.place.version == Version::V04;
        let stream = self.place.stream.clone().unwrap_or_default();
        let previous = self.place.previous.clone().or_else(|| is_old.then(|| stream.clone()));
        let mut options = Made::new(settings.span);
        options.text("stream", stream, settings.span);
        options.text("previous", previous.unwrap_or_default(), settings.span);
        if is_old {
            options.flag("numbered", true, settings.span);
            if settings.flag("StringEncode").unwrap_or(true) {
                options.flag("base64", true, settings.at("StringEncode"));
            }
        } else {
            settings.idle(&["StringEncode"], "since v0.5", self.report);
        }
        let span = settings.span;
        let mut whole = spot.options(settings);
        whole.put("formatter", made::component("serialize", span, options.done()));
        let mut transform = Transform::new("gollum", whole.done(), span);
        transform.stateful = is_old;
        self.push(Step::Transform(transform));
    }

    fn dropped_with_members(&mut self, helper: &str, settings: &Settings) {
        self.dropped(helper, settings);
        self.dropped(&format!("{helper}.*"), settings);
    }

    /// `format.MetadataCopy`: like `format.Copy`, with other names.
    pub(super) fn metadata_copy(&mut self, spot: &Spot, settings: &Settings) {
        let keys = settings.list("CopyToKeys");
        if keys.is_empty() {
            let from = self.column(settings, "Key").unwrap_or_else(|| "payload".to_owned());
            return self.copy(&Spot { source: from, ..spot.clone() }, settings);
        }
        for (key, span) in keys {
            let into = crate::gollum::modulators::column(&key, span, self.report);
            self.copied(&spot.source, &into, settings);
        }
        settings.idle(&["Key", "Mode", "Separator"], "beside `CopyToKeys`", self.report);
    }
}

fn put_text(options: &mut Made, option: &str, name: &'static str, settings: &Settings) {
    if let Some(text) = settings.text(name).filter(|text| !text.is_empty()) {
        options.text(option, text, settings.at(name));
    }
}

fn texts(name: &'static str, settings: &Settings) -> Node {
    let items = settings.list(name).into_iter().map(|(text, span)| made::text(unescape(&text), span));
    made::list(items.collect(), settings.at(name))
}

/// The actions of a function's name.
fn actions(function: &str) -> &'static [&'static str] {
    match function {
        "key" => &["key"],
        "val" => &["val"],
        "esc" => &["esc"],
        "dat" => &["dat"],
        "arr" => &["arr"],
        "obj" => &["obj"],
        "end" => &["end"],
        "arr+val" => &["arr", "val"],
        "arr+dat" => &["arr", "dat"],
        "arr+esc" => &["arr", "esc"],
        "val+end" => &["val", "end"],
        "esc+end" => &["esc", "end"],
        "dat+end" => &["dat", "end"],
        _ => &[],
    }
}
