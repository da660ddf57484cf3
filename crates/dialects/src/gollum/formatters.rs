//! Formatters.

use thalweg_config::Node;

use super::draft::{Step, Transform};
use super::gotemplate;
use super::gotime::{Purpose, strftime};
use super::made::{self, Made};
use super::modulators::{Modulation, Spot, column};
use super::settings::Settings;
use super::tables::Role;
use super::text::{Part, Text};

impl Modulation<'_> {
    pub(super) fn formatter(&mut self, settings: &Settings) {
        let name = settings.kind.name;
        if matches!(name, "format.Aggregate" | "format.Double") {
            return self.around_others(settings);
        }
        let spot = self.spot(settings);
        let value = vec![Part::Column(spot.source.clone())];
        if let Some(parts) = self.text_parts(settings, value) {
            return self.text(parts, &spot);
        }
        match name {
            "format.JSON" => {
                let mut options = spot.options_with_prefix(settings, "");
                options.flag("flatten", true, settings.span);
                self.transform("parse_json", options, settings.span);
            }
            "format.Move" => self.rename(&spot, settings),
            "format.Delete" => self.delete(&spot, settings),
            "format.Copy" => self.copy(&spot, settings),
            "format.Cast" => self.cast(&spot, settings),
            "format.ConvertTime" => self.convert_time(&spot, settings),
            "format.ToJSON" => self.to_json(&spot, settings),
            "format.ToCSV" => self.to_csv(&spot, settings),
            "format.Template" => self.template(&spot, settings),
            "format.RegExp" => self.extract(&spot, settings),
            "format.StreamRoute" => self.stream_route(&spot, settings),
            "format.StreamRevert" => {
                self.report.remark(settings.span, "`format.StreamRevert` does nothing: where messages go is said by `Streams`.");
            }
            "format.ProcessJSON" => self.process_json(&spot, settings),
            "format.ExtractJSON" => self.extract_json(&spot, settings),
            _ => self.by_table(&spot, settings),
        }
    }

    /// Formatters of which each setting is an option.
    fn by_table(&mut self, spot: &Spot, settings: &Settings) {
        let prefixed = |prefix: &str| spot.options_with_prefix(settings, prefix);
        let list = |name: &str| {
            let items = settings.list(name).into_iter().map(|(text, span)| made::text(text, span));
            made::list(items.collect(), settings.at(name))
        };
        let mut stateful = false;
        let (kind, mut options) = match settings.kind.name {
            "format.SplitToFields" => {
                let mut options = prefixed("");
                options.text("delimiter", settings.text_or("Delimiter", ","), settings.at("Delimiter"));
                options.put("fields", list("Fields"));
                self.wanted(settings, "Fields", "no fields are made");
                ("split_fields", options)
            }
            "format.Split" => {
                if spot.target == "payload" {
                    let message = "`format.Split` makes a list, which needs a `Target` that is not the payload.";
                    self.report.mistake(settings.span, message).help("Add `Target:` with the name of a field.");
                }
                let mut options = spot.options(settings);
                options.text("delimiter", settings.text_or("Delimiter", ","), settings.at("Delimiter"));
                ("split_array", options)
            }
            "format.SplitPick" => {
                let mut options = spot.options(settings);
                options.text("delimiter", settings.text_or("Delimiter", ","), settings.at("Delimiter"));
                options.number("index", settings.number("Index").unwrap_or(0), settings.at("Index"));
                ("split_pick", options)
            }
            "format.Grok" => {
                let mut options = prefixed("");
                options.put("patterns", list("Patterns"));
                self.wanted(settings, "Patterns", "nothing matches");
                for (name, option, inverted) in [
                    ("NamedCapturesOnly", "named_only", false),
                    ("RemoveEmptyValues", "keep_empty", true),
                    ("SkipDefaultPatterns", "default_patterns", true),
                ] {
                    if let Some(value) = settings.flag(name) {
                        options.flag(option, value != inverted, settings.at(name));
                    }
                }
                ("parse_grok", options)
            }
            "format.Agent" => {
                let mut options = prefixed(&settings.text_or("Prefix", ""));
                options.put("fields", self.fields(settings, &["platform", "os", "localization", "browser"]));
                ("parse_user_agent", options)
            }
            "format.GeoIP" => {
                let mut options = prefixed(&settings.text_or("Prefix", ""));
                options.text("database", settings.text_or("GeoIPFile", ""), settings.at("GeoIPFile"));
                self.wanted(settings, "GeoIPFile", "nothing is found");
                options.put("fields", self.fields(settings, &["city", "country", "continent", "location-hash"]));
                ("geoip", options)
            }
            "format.Base64Encode" | "format.Base64Decode" => {
                let kind = if settings.kind.name.ends_with("Encode") { "encode_base64" } else { "decode_base64" };
                let mut options = spot.options(settings);
                let alphabet = settings.text("Dictionary").or_else(|| settings.text("Base64Dictionary"));
                if let Some(alphabet) = alphabet.filter(|alphabet| !alphabet.is_empty()) {
                    options.text("alphabet", alphabet, settings.at("Dictionary"));
                }
                (kind, options)
            }
            "format.Flatten" => {
                let separator = settings.text_or("Separator", ".");
                if spot.source == "payload" {
                    let message = "`format.Flatten` needs a `Source`: the payload has no members.";
                    self.report.mistake(settings.span, message).help("Parse it before, with `format.JSON`.");
                }
                if spot.target != "payload" && spot.target != spot.source {
                    let message = "The members are flattened where they are, so `Target` has nothing like it here.";
                    self.report.mistake(settings.at("Target"), message).help("Use `format.Move` after it.");
                }
                self.skips_nothing(spot, settings);
                let mut options = Made::new(settings.span);
                options.put("fields", made::list(vec![made::text(&spot.source, settings.at("Source"))], settings.span));
                options.text("separator", separator, settings.at("Separator"));
                ("flatten", options)
            }
            "format.Replace" => {
                let mut options = spot.options(settings);
                options.text("search", settings.text_or("Search", ""), settings.at("Search"));
                options.text("with", settings.text_or("ReplaceWith", ""), settings.at("ReplaceWith"));
                ("replace", options)
            }
            "format.Runlength" => {
                let mut options = spot.options(settings);
                let separator = settings.text_or("Separator", ":");
                if separator != ":" {
                    options.text("separator", separator, settings.at("Separator"));
                }
                if settings.flag("StoreRunlengthOnly") == Some(true) {
                    options.flag("only", true, settings.at("StoreRunlengthOnly"));
                }
                ("runlength", options)
            }
            "format.Trim" => {
                let mut options = spot.options(settings);
                if let Some(characters) = settings.text("Characters") {
                    options.text("characters", characters, settings.at("Characters"));
                }
                ("trim", options)
            }
            "format.TrimToBounds" => {
                let mut options = spot.options(settings);
                for (name, option) in [("LeftBounds", "left"), ("RightBounds", "right")] {
                    if let Some(text) = settings.text(name).filter(|text| !text.is_empty()) {
                        options.text(option, text, settings.at(name));
                    }
                }
                for (name, option) in [("LeftOffset", "left_offset"), ("RightOffset", "right_offset")] {
                    if let Some(number) = settings.number(name).filter(|number| *number != 0) {
                        options.number(option, number, settings.at(name));
                    }
                }
                ("trim_to_bounds", options)
            }
            "format.Identifier" => {
                let kind = self.id_kind(settings);
                stateful = kind != "hash";
                let mut options = Made::new(settings.span);
                if settings.has("Source") {
                    let message = "`format.Identifier` always takes the payload, so `Source` means nothing.";
                    self.report.remark(settings.at("Source"), message);
                }
                options.text("into", &spot.target, settings.at("Target"));
                options.text("kind", kind, settings.at("Generator"));
                self.skips_nothing(spot, settings);
                ("add_id", options)
            }
            name => {
                self.report.mistake(settings.span, format!("`{name}` has nothing like it here."));
                return;
            }
        };
        if options.is_empty() {
            options = Made::new(settings.span);
        }
        let mut transform = Transform::new(kind, options.done(), settings.span);
        transform.stateful = stateful;
        self.push(Step::Transform(transform));
    }

    fn fields(&self, settings: &Settings, defaults: &[&str]) -> Node {
        let given = settings.list("Fields");
        let items = if given.is_empty() {
            defaults.iter().map(|name| made::text(*name, settings.span)).collect()
        } else {
            given.into_iter().map(|(text, span)| made::text(text, span)).collect()
        };
        made::list(items, settings.at("Fields"))
    }

    fn wanted(&mut self, settings: &Settings, name: &str, otherwise: &str) {
        if !settings.has(name) {
            let message = format!("`{}` needs `{name}`: without it, {otherwise}.", settings.kind.name);
            self.report.mistake(settings.span, message);
        }
    }

    fn id_kind(&mut self, settings: &Settings) -> &'static str {
        match settings.text_or("Generator", "time").to_ascii_lowercase().as_str() {
            "time" => "time",
            "hash" => "hash",
            "seq" => "sequence",
            "seqhex" => "sequence_hex",
            other => {
                let message = format!("`{other}` is no generator of ids.");
                self.report.mistake(settings.at("Generator"), message).help("There are `time`, `hash`, `seq` and `seqhex`.");
                "time"
            }
        }
    }

    pub(super) fn text(&mut self, parts: Vec<Part>, spot: &Spot) {
        let unless_empty = spot.skip_empty.then(|| spot.source.clone());
        self.push(Step::Text(Text { parts, into: spot.target.clone(), unless_empty, span: spot.span }));
    }

    /// What a formatter makes of a text, if it only puts something around it or in its place.
    pub(super) fn text_parts(&mut self, settings: &Settings, value: Vec<Part>) -> Option<Vec<Part>> {
        let literal = |text: String| (!text.is_empty()).then_some(Part::Literal(text));
        let before = |parts: Vec<Option<Part>>, value: Vec<Part>| {
            Some(parts.into_iter().flatten().chain(value).collect::<Vec<_>>())
        };
        match settings.kind.name {
            "format.Envelope" => {
                let prefix = literal(settings.text_or("Prefix", ""));
                let postfix = literal(settings.text_or("Postfix", "\n"));
                Some(prefix.into_iter().chain(value).chain(postfix).collect())
            }
            "format.Hostname" => {
                before(vec![Some(Part::Hostname), literal(settings.text_or("Separator", ":"))], value)
            }
            "format.Sequence" => {
                before(vec![Some(Part::Sequence), literal(settings.text_or("Separator", ":"))], value)
            }
            "format.StreamName" => {
                let separator = literal(settings.text_or("Separator", ":"));
                let Some(stream) = self.place.stream.clone() else {
                    let message = "`format.StreamName` stands where messages go to several streams.";
                    self.report.mistake(settings.span, message).help("Put it on the producers.");
                    return Some(value);
                };
                before(vec![literal(stream), separator], value)
            }
            "format.Timestamp" => {
                let layout = settings.text_or("Timestamp", "2006-01-02 15:04:05 MST | ");
                let format = self.time_format(&layout, "Timestamp", settings, Purpose::Write)?;
                before(vec![Some(Part::Time(format))], value)
            }
            "format.Override" => Some(literal(settings.text_or("Value", "")).into_iter().collect()),
            "format.Replace" if settings.text("Search").is_none_or(|search| search.is_empty()) => {
                Some(literal(settings.text_or("ReplaceWith", "")).into_iter().collect())
            }
            _ => None,
        }
    }

    pub(super) fn time_format(
        &mut self,
        layout: &str,
        name: &str,
        settings: &Settings,
        purpose: Purpose,
    ) -> Option<String> {
        match strftime(layout, purpose) {
            Ok(format) if !(format.contains('}') && purpose == Purpose::Write) => Some(format),
            Ok(_) => {
                self.report.mistake(settings.at(name), "A brace cannot stand within the format of a time.");
                Some(String::new())
            }
            Err(wrong) => {
                let message = format!("`{}` in this layout of a time has nothing like it here.", wrong.element);
                let help = match wrong.element.as_bytes() {
                    [b'.' | b',', ..] => "Fractions of a second have three, six or nine digits: `.000`.",
                    _ => "Write the zone as `-0700` or `-07:00`.",
                };
                self.report.mistake(settings.at(name), message).help(help);
                Some(String::new())
            }
        }
    }

    fn rename(&mut self, spot: &Spot, settings: &Settings) {
        if spot.source == spot.target {
            let message = "`format.Move` would clear what it moves, since it goes to where it is.";
            self.report.mistake(settings.span, message).help("Use `format.Delete` to clear it.");
            return;
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

    /// `SkipIfEmpty` where a transform does nothing with what is empty anyway.
    fn skips_nothing(&mut self, spot: &Spot, settings: &Settings) {
        if spot.skip_empty {
            let message = format!("`SkipIfEmpty` means nothing for `{}`.", settings.kind.name);
            self.report.remark(settings.at("SkipIfEmpty"), message);
        }
    }

    fn delete(&mut self, spot: &Spot, settings: &Settings) {
        if spot.target == "payload" {
            return self.text(Vec::new(), &Spot { skip_empty: false, ..spot.clone() });
        }
        let names = [spot.target.clone(), format!("{}.*", spot.target)];
        let names = names.into_iter().map(|name| made::text(name, settings.at("Target")));
        let names = made::list(names.collect(), settings.span);
        self.push(Step::Transform(Transform::new("drop", names, settings.span)));
        self.skips_nothing(spot, settings);
    }

    fn copy(&mut self, spot: &Spot, settings: &Settings) {
        let mode = settings.text_or("Mode", "replace").to_ascii_lowercase();
        let separator = settings.text("Separator").filter(|separator| !separator.is_empty());
        if !matches!(mode.as_str(), "replace" | "append" | "prepend") {
            let message = format!("`{mode}` is no way to copy.");
            self.report.mistake(settings.at("Mode"), message).help("There are `replace`, `append` and `prepend`.");
        }
        if mode == "replace" && spot.source == spot.target {
            self.report.remark(settings.span, "`format.Copy` copies this to where it is, and is left out.");
            return;
        }
        let mut options = Made::new(settings.span);
        options.text("from", &spot.source, settings.at("Source"));
        options.text("into", &spot.target, settings.at("Target"));
        if mode != "replace" {
            options.text("mode", mode, settings.at("Mode"));
            if let Some(separator) = separator {
                options.text("separator", separator, settings.at("Separator"));
            }
        }
        if spot.skip_empty {
            options.flag("skip_empty", true, settings.at("SkipIfEmpty"));
        }
        self.transform("copy", options, settings.span);
    }

    fn copied(&mut self, from: &str, into: &str, settings: &Settings) {
        if from != into {
            let mut options = Made::new(settings.span);
            options.text("from", from, settings.span).text("into", into, settings.span);
            self.transform("copy", options, settings.span);
        }
    }

    fn dropped(&mut self, name: &str, settings: &Settings) {
        let names = made::list(vec![made::text(name, settings.span)], settings.span);
        self.push(Step::Transform(Transform::new("drop", names, settings.span)));
    }

    fn cast(&mut self, spot: &Spot, settings: &Settings) {
        let wanted = settings.text_or("ToType", "string").to_ascii_lowercase();
        let kind = match wanted.as_str() {
            "string" | "bytes" => "text",
            "int" => "int",
            "float" => "float",
            other => {
                let message = format!("`{other}` is no type that can be cast to.");
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
        // The payload is bytes whatever was made of it: a number is only asked for to be one.
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

    fn convert_time(&mut self, spot: &Spot, settings: &Settings) {
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

    /// From a time in one form to the other.
    pub(super) fn times(&mut self, spot: &Spot, from: &str, to: &str, settings: &Settings) {
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

    fn to_json(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = Made::new(settings.span);
        options.text("format", "json", settings.span).flag("nested", true, settings.span);
        let root = self.column(settings, "Root");
        if let Some(root) = &root {
            options.text("root", root, settings.at("Root"));
        }
        let mut ignored = Vec::new();
        for (path, span) in settings.list("Ignore") {
            let name = column(&path, span, self.report);
            let name = root.as_ref().map_or(name.clone(), |root| format!("{root}.{name}"));
            ignored.push(made::text(name, span));
        }
        if !ignored.is_empty() {
            options.put("exclude", made::list(ignored, settings.at("Ignore")));
        }
        self.encoded(options, spot, settings);
    }

    fn encoded(&mut self, mut options: Made, spot: &Spot, settings: &Settings) {
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

    fn to_csv(&mut self, spot: &Spot, settings: &Settings) {
        let keys = settings.list("Keys");
        self.wanted(settings, "Keys", "every message would be empty");
        let separator = settings.text_or("Separator", ",");
        let trailing = settings.flag("KeepLastSeparator").unwrap_or(false);
        let columns: Vec<Node> =
            keys.iter().map(|(path, span)| made::text(column(path, *span, self.report), *span)).collect();
        if separator.chars().count() != 1 {
            // CSV has one character there; a text can have any.
            let mut parts = Vec::new();
            for (index, name) in columns.iter().enumerate() {
                if index > 0 && !separator.is_empty() {
                    parts.push(Part::Literal(separator.clone()));
                }
                parts.push(Part::Column(name.as_str().unwrap_or_default().to_owned()));
            }
            if trailing && !separator.is_empty() {
                parts.push(Part::Literal(separator));
            }
            return self.text(parts, spot);
        }
        let mut options = Made::new(settings.span);
        options.text("format", "csv", settings.span);
        options.put("fields", made::list(columns, settings.at("Keys")));
        if separator != "," {
            options.text("delimiter", separator, settings.at("Separator"));
        }
        if trailing {
            options.flag("trailing_delimiter", true, settings.at("KeepLastSeparator"));
        }
        self.encoded(options, spot, settings);
    }

    fn template(&mut self, spot: &Spot, settings: &Settings) {
        let template = settings.text_or("Template", "");
        if spot.skip_empty {
            let message = "A template is written for each message, so `SkipIfEmpty` has nothing like it here.";
            self.report.mistake(settings.at("SkipIfEmpty"), message).help("Ask in the template: `{{if .field}}…{{end}}`.");
        }
        match gotemplate::minijinja(&template, "") {
            Ok(template) => {
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
                self.report.mistake(settings.at("Template"), message).help(
                    "Fields, `if`, `with`, `range`, `eq`, `and`, `or`, `not`, `index`, `len`, `print` and `printf` are understood.",
                );
            }
        }
    }

    fn extract(&mut self, spot: &Spot, settings: &Settings) {
        let pattern = settings.raw_text("Expression").unwrap_or_else(|| "(.*)".to_owned());
        let posix = settings.flag("Posix").unwrap_or(true);
        if self.is_pattern(&pattern, settings.at("Expression")) && posix && pattern.contains(['|', '?']) {
            let message = "Of several ways to match, the first is taken here; with `Posix`, gollum took the longest.";
            self.report.remark(settings.at("Expression"), message);
        }
        let mut options = spot.options(settings);
        options.text("pattern", pattern, settings.at("Expression"));
        options.text("template", settings.text_or("Template", "${1}"), settings.at("Template"));
        options.text("no_match", "empty", settings.span);
        self.transform("extract", options, settings.span);
    }

    fn stream_route(&mut self, spot: &Spot, settings: &Settings) {
        let delimiter = settings.text_or("Delimiter", ":");
        let on_name = settings.plugins("StreamModulator");
        if self.place.role != Role::Consumer || self.frame.instead.is_some() {
            let message = "`format.StreamRoute` leads messages to streams, which are chosen before a producer.";
            self.report.mistake(settings.span, message).help("Put it on the consumer.");
            return;
        }
        if spot.source != spot.target {
            let message = "`format.StreamRoute` takes the name off the text that it reads: `Source` and `Target` are the same here.";
            self.report.mistake(settings.span, message).help("Use `ApplyTo`.");
        }
        let mut options = Made::new(settings.span);
        let mut helpers = Vec::new();
        if on_name.is_empty() {
            if spot.source != "payload" {
                options.text("field", &spot.source, settings.at("Source"));
            }
            options.text("prefix_until", delimiter, settings.at("Delimiter"));
        } else {
            let helper = "name_of_stream".to_owned();
            let mut pick = spot.options(settings);
            pick.text("into", &helper, settings.span);
            pick.text("delimiter", &delimiter, settings.at("Delimiter")).number("index", 0, settings.span);
            self.transform("split_pick", pick, settings.span);
            let outer = self.frame.clone();
            self.frame.instead = Some(("payload".to_owned(), helper.clone()));
            self.list(&on_name);
            self.frame = outer;
            let mut strip = spot.options(settings);
            strip.text("pattern", format!("(?s)^.*?{}", regex::escape(&delimiter)), settings.at("Delimiter"));
            strip.text("with", "", settings.span);
            self.transform("replace", strip, settings.span);
            options.text("field", &helper, settings.span);
            helpers.push(helper);
        }
        self.route_by(options, &helpers, settings.span);
        for helper in helpers {
            self.dropped(&helper, settings);
        }
    }

    /// The formatters that hold others.
    fn around_others(&mut self, settings: &Settings) {
        if settings.kind.name == "format.Aggregate" {
            let outer = self.frame.clone();
            let both = self.column(settings, "ApplyTo");
            let source = self.column(settings, "Source").or(both.clone());
            let target = self.column(settings, "Target").or(both);
            settings.idle(&["SkipIfEmpty"], "for `format.Aggregate`: write it in its formatters", self.report);
            self.frame.source = source.or(self.frame.source.take());
            self.frame.target = target.or(self.frame.target.take());
            let inner = settings.plugins("Modulators");
            self.list(&inner);
            self.frame = outer;
            return;
        }
        let spot = self.spot(settings);
        let separator = settings.text_or("Separator", ":");
        let mut parts = self.rendering(settings, "Left", &spot);
        if !separator.is_empty() {
            parts.push(Part::Literal(separator));
        }
        parts.extend(self.rendering(settings, "Right", &spot));
        let helpers: Vec<String> = parts
            .iter()
            .filter_map(|part| match part {
                Part::Column(name) if name.ends_with("_of_double") => Some(name.clone()),
                _ => None,
            })
            .collect();
        self.text(parts, &spot);
        for helper in helpers {
            self.dropped(&helper, settings);
        }
    }

    /// One side of `format.Double`: a text where its formatters make texts, a column of its own otherwise.
    fn rendering(&mut self, settings: &Settings, side: &str, spot: &Spot) -> Vec<Part> {
        let nodes = settings.plugins(side);
        let plugins = self.read(&nodes);
        let value = vec![Part::Column(spot.source.clone())];
        let only_texts = plugins.iter().all(|inner| {
            let texts = matches!(
                inner.kind.name,
                "format.Envelope" | "format.Hostname" | "format.Sequence" | "format.StreamName" | "format.Timestamp" | "format.Override"
            ) || inner.kind.name == "format.Identifier";
            texts && !["Source", "Target", "ApplyTo", "SkipIfEmpty"].iter().any(|name| inner.has(name))
        });
        if only_texts && spot.source == "payload" {
            let mut parts = value;
            for inner in plugins {
                if inner.kind.name == "format.Identifier" {
                    parts = vec![Part::Id(self.id_kind(&inner))];
                } else if let Some(next) = self.text_parts(&inner, parts.clone()) {
                    parts = next;
                }
                inner.finish(self.report);
            }
            return parts;
        }
        for inner in plugins.iter().filter(|inner| inner.kind.role != Role::Formatter) {
            let message = "A filter inside of `format.Double` has nothing like it here.";
            self.report.mistake(inner.span, message).help("Put it before.");
        }
        let helper = format!("{}_of_double", side.to_ascii_lowercase());
        self.copied(&spot.source, &helper, settings);
        let outer = self.frame.clone();
        self.frame.instead = Some((spot.source.clone(), helper.clone()));
        self.list(&nodes);
        self.frame = outer;
        vec![Part::Column(helper)]
    }
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}
