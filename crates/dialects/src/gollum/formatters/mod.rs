//! Converts formatters.

mod around;
mod former;
mod values;

use thalweg_config::{Node, Span};

use super::draft::{Step, Transform};
use super::made::{self, Made};
use super::modulators::{Modulation, Spot};
use super::settings::Settings;
use super::text::TextPart;
use super::version::Version;

/// The facts of `format.Agent`.
const OF_AGENT: &[&str] = &[
    "mozilla",
    "platform",
    "os",
    "localization",
    "engine",
    "engine-version",
    "browser",
    "browser-version",
    "bot",
    "mobile",
];

/// The facts of `format.GeoIP`.
const OF_ADDRESS: &[&str] = &[
    "city",
    "country-code",
    "country",
    "continent-code",
    "continent",
    "timezone",
    "proxy",
    "satellite",
    "location",
    "location-hash",
];

impl Modulation<'_> {
    pub(super) fn formatter(&mut self, settings: &Settings) {
        let name = settings.kind.name;
        if matches!(name, "format.Aggregate" | "format.Double") {
            return self.around_others(settings);
        }
        let spot = self.spot(settings);
        let value = vec![TextPart::Column(spot.source.clone())];
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
            "format.ToJSON" => self.write_json(&spot, settings),
            "format.ToCSV" => self.write_csv(&spot, settings),
            "format.Template" => self.template(&spot, settings),
            "format.RegExp" => self.extract(&spot, settings),
            "format.StreamRoute" => self.stream_route(&spot, settings),
            "format.StreamRevert" => {
                self.report.remark(
                    settings.span,
                    "`format.StreamRevert` does nothing: `Streams` decides where messages go.",
                );
            }
            "format.Clear" => self.delete(&spot, settings),
            "format.MetadataCopy" => self.metadata_copy(&spot, settings),
            "format.GrokToJSON" => self.grok_to_json(&spot, settings),
            "format.TemplateJSON" => self.template_json(&spot, settings),
            "format.Serialize" => self.serialize(&spot, settings),
            "format.ProcessTSV" => self.process_tsv(&spot, settings),
            "format.CollectdToInflux08" => self.collectd("0.8", &spot, settings),
            "format.CollectdToInflux09" => self.collectd("0.9.0", &spot, settings),
            "format.CollectdToInflux10" => self.collectd("0.9.1", &spot, settings),
            "format.ProcessJSON"
            | "format.ExtractJSON"
            | "format.JSONToArray"
            | "format.SplitToJSON"
            | "format.JSONToInflux10"
            | "format.TextToJSON" => self.of_json(&spot, settings),
            "format.Trim" if self.trims_to_separators(settings) => {
                self.trim_to_separators(&spot, settings);
            }
            "format.TrimToBounds" => self.trim_to_bounds(&spot, settings),
            "format.Agent" => self.agent(&spot, settings),
            "format.Grok" => self.grok(&spot, settings),
            _ => self.by_table(&spot, settings),
        }
    }

    /// Converts formatters whose settings map directly to options.
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
                if settings.list("Fields").is_empty() {
                    return self.remark_without(settings, "Fields", "no fields are made");
                }
                ("split_fields", options)
            }
            "format.Split" => {
                if spot.target == "payload" {
                    settings.idle(&["Delimiter"], "without `Target`", self.report);
                    return self.remark_discards(settings, "Target");
                }
                let mut options = spot.options(settings);
                options.text("delimiter", settings.text_or("Delimiter", ","), settings.at("Delimiter"));
                ("split_array", options)
            }
            "format.SplitPick" => {
                let mut options = spot.options(settings);
                options.text("delimiter", self.delimiter_to_pick(settings), settings.at("Delimiter"));
                options.number("index", settings.number("Index").unwrap_or(0), settings.at("Index"));
                ("split_pick", options)
            }
            "format.GeoIP" => {
                let mut options = prefixed(&settings.text_or("Prefix", ""));
                options.text("database", settings.text_or("GeoIPFile", ""), settings.at("GeoIPFile"));
                if settings.text_or("GeoIPFile", "").is_empty() {
                    settings.idle(&["Fields", "Prefix"], "without `GeoIPFile`", self.report);
                    return self.remark_without(settings, "GeoIPFile", "no fields are made");
                }
                options.put(
                    "fields",
                    self.fields(settings, &["city", "country", "continent", "location-hash"], OF_ADDRESS),
                );
                ("geoip", options)
            }
            "format.Base64Encode" | "format.Base64Decode" => {
                let kind =
                    if settings.kind.name.ends_with("Encode") { "encode_base64" } else { "decode_base64" };
                let mut options = spot.options(settings);
                let alphabet = settings.text("Dictionary").or_else(|| settings.text("Base64Dictionary"));
                if let Some(alphabet) = alphabet.filter(|alphabet| !alphabet.is_empty()) {
                    options.text("alphabet", alphabet, settings.at("Dictionary"));
                }
                if kind == "decode_base64" && self.place.version == Version::V04 {
                    options.text("on_error", "keep", settings.span);
                }
                (kind, options)
            }
            "format.Flatten" => {
                if spot.source == "payload" {
                    settings.idle(&["Separator"], "without `Source`", self.report);
                    return self.remark_discards(settings, "Source");
                }
                self.skips_nothing(spot, settings);
                let separator = settings.text_or("Separator", ".");
                let mut options = Made::new(settings.span);
                options.put(
                    "fields",
                    made::list(vec![made::text(&spot.source, settings.at("Source"))], settings.span),
                );
                if spot.target == spot.source {
                    options.text("separator", separator, settings.at("Separator"));
                } else {
                    // The nested fields stay. A dot in a name is no level of it.
                    options.text("separator", separator.replace('.', "\\."), settings.at("Separator"));
                    options.flag("keep", true, settings.span);
                    if spot.target != "payload" {
                        options.text("prefix", format!("{}.", spot.target), settings.at("Target"));
                    }
                }
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
            "format.Identifier" => {
                let kind = self.id_kind(settings);
                stateful = kind != "hash";
                let mut options = Made::new(settings.span);
                if settings.has("Source") {
                    let message = "`format.Identifier` always uses the payload, so `Source` has no effect.";
                    self.report.remark(settings.at("Source"), message);
                }
                options.text("into", &spot.target, settings.at("Target"));
                options.text("kind", kind, settings.at("Generator"));
                if stateful && self.place.version == Version::V04 {
                    options.number("start", 0, settings.span);
                }
                self.skips_nothing(spot, settings);
                ("add_id", options)
            }
            name => {
                self.report.mistake(settings.span, format!("`{name}` has no equivalent here."));
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

    /// Facts that are unknown are empty, as in gollum.
    fn agent(&mut self, spot: &Spot, settings: &Settings) {
        let prefix = settings.text_or("Prefix", "");
        let fields = self.fields(settings, &["platform", "os", "localization", "browser"], OF_AGENT);
        if fields.items().is_empty() {
            return settings.idle(&["Prefix", "SkipIfEmpty"], "without `Fields`", self.report);
        }
        let mut options = spot.options_with_prefix(settings, &prefix);
        let below = if spot.target == "payload" { String::new() } else { format!("{}.", spot.target) };
        let mut filled = Made::new(settings.span);
        let texts = fields.items().iter().filter_map(Node::as_str);
        for fact in texts.filter(|fact| !matches!(*fact, "bot" | "mobile")) {
            let column = format!("{below}{prefix}{fact}");
            filled.text(&column, format!("coalesce({}, '')", super::filters::quoted(&column)), settings.span);
        }
        options.put("fields", fields);
        self.transform("parse_user_agent", options, settings.span);
        if !filled.is_empty() && !spot.skip_empty {
            self.transform("set", filled, settings.span);
        }
    }

    fn grok(&mut self, spot: &Spot, settings: &Settings) {
        let mut options = spot.options_with_prefix(settings, "");
        let patterns = settings.list("Patterns").into_iter().map(|(text, span)| made::text(text, span));
        options.put("pattern", made::list(patterns.collect(), settings.at("Patterns")));
        if settings.list("Patterns").is_empty() {
            let names = ["NamedCapturesOnly", "RemoveEmptyValues", "SkipDefaultPatterns"];
            settings.idle(&names, "without `Patterns`", self.report);
            return self.remark_discards(settings, "Patterns");
        }
        for (name, option, inverted) in [
            ("NamedCapturesOnly", "named_only", false),
            ("RemoveEmptyValues", "keep_empty", true),
            ("SkipDefaultPatterns", "default_patterns", true),
        ] {
            if let Some(value) = settings.flag(name) {
                options.flag(option, value != inverted, settings.at(name));
            }
        }
        // gollum always makes texts, even if a pattern names another type.
        options.flag("typed", false, settings.span);
        self.transform("parse_grok", options, settings.span);
    }

    /// The delimiter of `format.SplitPick`, whose default changed with v0.6.
    fn delimiter_to_pick(&mut self, settings: &Settings) -> String {
        if let Some(delimiter) = settings.text("Delimiter") {
            return delimiter;
        }
        if self.place.version < Version::V06 {
            return ":".to_owned();
        }
        let message = "The delimiter is `,`, the default of gollum 0.6. In 0.5 it was `:`.";
        self.report.remark(settings.span, message);
        ",".to_owned()
    }

    /// True for `format.Trim` of v0.5, which had other options.
    fn trims_to_separators(&self, settings: &Settings) -> bool {
        let names = ["LeftSeparator", "RightSeparator", "LeftOffset", "RightOffset"];
        names.iter().any(|name| settings.has(name))
            || self.place.version == Version::V05 && !settings.has("Characters")
    }

    fn fields(&mut self, settings: &Settings, defaults: &[&str], all: &[&str]) -> Node {
        let given = settings.list("Fields");
        let items: Vec<Node> = if !settings.has("Fields") {
            defaults.iter().map(|name| made::text(*name, settings.span)).collect()
        } else {
            let known = |(text, span): (String, Span)| {
                let name = text.to_ascii_lowercase();
                if all.contains(&name.as_str()) {
                    return Some(made::text(name, span));
                }
                let message = format!("`{text}` is not a fact that gollum knows, so it is left out.");
                self.report.remark(span, message);
                None
            };
            given.into_iter().filter_map(known).collect()
        };
        made::list(items, settings.at("Fields"))
    }

    /// Remarks on a missing option.
    fn remark_without(&mut self, settings: &Settings, name: &str, otherwise: &str) {
        let message = format!("`{}` has no `{name}`: {otherwise}, as in gollum.", settings.kind.name);
        self.report.remark(settings.span, message);
    }

    /// Remarks on an option without which gollum discards every message, and discards them.
    fn remark_discards(&mut self, settings: &Settings, name: &str) {
        self.remark_without(settings, name, "every message is discarded");
        self.done.ends.get_or_insert(None);
    }

    fn id_kind(&mut self, settings: &Settings) -> &'static str {
        let generator = settings.text_or("Generator", "time");
        id_kind(&generator).unwrap_or_else(|| {
            let message = format!("`{}` is not a generator of ids.", generator.to_ascii_lowercase());
            self.report
                .mistake(settings.at("Generator"), message)
                .help("There are `time`, `hash`, `seq` and `seqhex`.");
            "time"
        })
    }
}

/// Returns how `add_id` makes the identifiers of a generator of gollum.
pub(super) fn id_kind(generator: &str) -> Option<&'static str> {
    match generator.to_ascii_lowercase().as_str() {
        "time" => Some("time"),
        "hash" => Some("hash"),
        "seq" => Some("sequence"),
        "seqhex" => Some("sequence_hex"),
        _ => None,
    }
}
