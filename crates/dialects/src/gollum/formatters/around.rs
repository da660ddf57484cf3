//! Converts formatters that put text around a value, contain other formatters, or send messages to other
//! streams.

use crate::gollum::draft::Step;
use crate::gollum::gotime::{Purpose, strftime};
use crate::gollum::made::Made;
use crate::gollum::modulators::{Modulation, Spot};
use crate::gollum::producers::field_of;
use crate::gollum::settings::Settings;
use crate::gollum::tables::Role;
use crate::gollum::text::{Text, TextPart};
use crate::gollum::version::Version;

impl Modulation<'_> {
    pub(in crate::gollum) fn text(&mut self, parts: Vec<TextPart>, spot: &Spot) {
        let unless_empty = spot.skip_empty.then(|| spot.source.clone());
        self.push(Step::Text(Text { parts, into: spot.target.clone(), unless_empty, span: spot.span }));
    }

    /// Returns the parts of a formatter's result, if the formatter only adds text to a value or replaces it.
    pub(in crate::gollum) fn text_parts(
        &mut self,
        settings: &Settings,
        value: Vec<TextPart>,
    ) -> Option<Vec<TextPart>> {
        let literal = |text: String| (!text.is_empty()).then_some(TextPart::Literal(text));
        let before = |parts: Vec<Option<TextPart>>, value: Vec<TextPart>| {
            Some(parts.into_iter().flatten().chain(value).collect::<Vec<_>>())
        };
        match settings.kind.name {
            "format.Envelope" => {
                let prefix = literal(settings.text_or("Prefix", ""));
                let postfix = literal(settings.text_or("Postfix", "\n"));
                Some(prefix.into_iter().chain(value).chain(postfix).collect())
            }
            "format.Hostname" => {
                before(vec![Some(TextPart::Hostname), literal(settings.text_or("Separator", ":"))], value)
            }
            "format.Sequence" => {
                // Consumers of v0.4 count from 0, the formatters that came later from 1.
                let start = i64::from(self.place.version > Version::V04);
                before(
                    vec![Some(TextPart::Sequence(start)), literal(settings.text_or("Separator", ":"))],
                    value,
                )
            }
            "format.StreamName" => {
                let separator = literal(settings.text_or("Separator", ":"));
                let stream = if settings.flag("UsePrevious") == Some(true) {
                    self.place
                        .previous
                        .clone()
                        .or_else(|| self.place.stream.clone().filter(|_| self.place.version == Version::V04))
                } else {
                    if self.place.stream.is_none() {
                        let message =
                            "These messages go to several streams, so their name is empty, as in gollum.";
                        self.report.remark(settings.span, message);
                    }
                    self.place.stream.clone()
                };
                let stream = stream.unwrap_or_default();
                let name = match field_of(&stream) {
                    Some(field) => Some(TextPart::Column(field.to_owned())),
                    None => literal(stream),
                };
                before(vec![name, separator], value)
            }
            "format.Timestamp" => {
                let layout = settings.text_or("Timestamp", "2006-01-02 15:04:05 MST | ");
                let format = self.time_format(&layout, "Timestamp", settings, Purpose::Write)?;
                before(vec![Some(TextPart::Time(format))], value)
            }
            "format.Override" => Some(literal(settings.text_or("Value", "")).into_iter().collect()),
            "format.Replace" if settings.text("Search").is_none_or(|search| search.is_empty()) => {
                Some(literal(settings.text_or("ReplaceWith", "")).into_iter().collect())
            }
            _ => None,
        }
    }

    pub(in crate::gollum) fn time_format(
        &mut self,
        layout: &str,
        name: &str,
        settings: &Settings,
        purpose: Purpose,
    ) -> Option<String> {
        match strftime(layout, purpose) {
            Ok(format) => Some(format),
            Err(wrong) => {
                let message = format!("`{}` in this layout of a time has no equivalent here.", wrong.element);
                self.report.mistake(settings.at(name), message);
                Some(String::new())
            }
        }
    }

    pub(super) fn stream_route(&mut self, spot: &Spot, settings: &Settings) {
        let delimiter = settings.text_or("Delimiter", ":");
        let on_name = settings.plugins("StreamModulator");
        if self.place.role != Role::Consumer || self.frame.instead.is_some() {
            let message = "Here it is too late for another stream, so `format.StreamRoute` only removes the name, as in gollum.";
            self.report.remark(settings.span, message);
            settings.idle(&["StreamModulator"], "where the stream cannot change", self.report);
            return self.without_prefix(spot, &delimiter, settings);
        }
        let mut options = Made::new(settings.span);
        let mut helpers = Vec::new();
        if on_name.is_empty() && spot.source == spot.target {
            if spot.source != "payload" {
                options.text("field", &spot.source, settings.at("Source"));
            }
            options.text("prefix_until", delimiter, settings.at("Delimiter"));
        } else {
            let helper = "name_of_stream".to_owned();
            let read = Spot { target: spot.source.clone(), ..spot.clone() };
            let mut pick = read.options(settings);
            pick.text("into", &helper, settings.span);
            pick.text("delimiter", &delimiter, settings.at("Delimiter")).number("index", 0, settings.span);
            self.transform("split_pick", pick, settings.span);
            let outer = self.frame.clone();
            self.frame.instead = Some(("payload".to_owned(), helper.clone()));
            self.list(&on_name);
            self.frame = outer;
            self.without_prefix(spot, &delimiter, settings);
            options.text("field", &helper, settings.span);
            helpers.push(helper);
        }
        self.route_by(options, &helpers, settings.span);
        for helper in helpers {
            self.dropped(&helper, settings);
        }
    }

    /// Removes the text up to a delimiter.
    fn without_prefix(&mut self, spot: &Spot, delimiter: &str, settings: &Settings) {
        let mut strip = spot.options(settings);
        strip.text("pattern", format!("(?s)^.*?{}", regex::escape(delimiter)), settings.at("Delimiter"));
        strip.text("with", "", settings.span);
        self.transform("replace", strip, settings.span);
    }

    /// Converts the formatters that contain others.
    pub(super) fn around_others(&mut self, settings: &Settings) {
        if settings.kind.name == "format.Aggregate" {
            let outer = self.frame.clone();
            let both = self.column(settings, "ApplyTo");
            let source = self.column(settings, "Source").or(both.clone());
            let target = self.column(settings, "Target").or(both);
            settings.idle(
                &["SkipIfEmpty"],
                "for `format.Aggregate`: write it in its formatters",
                self.report,
            );
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
            parts.push(TextPart::Literal(separator));
        }
        parts.extend(self.rendering(settings, "Right", &spot));
        let helpers: Vec<String> = parts
            .iter()
            .filter_map(|part| match part {
                TextPart::Column(name) if name.ends_with("_of_double") => Some(name.clone()),
                _ => None,
            })
            .collect();
        self.text(parts, &spot);
        for helper in helpers {
            self.dropped(&helper, settings);
        }
    }

    /// Returns one side of `format.Double`: its parts if its formatters only make texts, otherwise a helper
    /// column.
    pub(super) fn rendering(&mut self, settings: &Settings, side: &str, spot: &Spot) -> Vec<TextPart> {
        let nodes = settings.plugins(side);
        let plugins = self.read(&nodes);
        let value = vec![TextPart::Column(spot.source.clone())];
        let only_texts = plugins.iter().all(|inner| {
            let texts = matches!(
                inner.kind.name,
                "format.Envelope"
                    | "format.Hostname"
                    | "format.Sequence"
                    | "format.StreamName"
                    | "format.Timestamp"
                    | "format.Override"
            ) || inner.kind.name == "format.Identifier";
            texts && !["Source", "Target", "ApplyTo", "SkipIfEmpty"].iter().any(|name| inner.has(name))
        });
        if only_texts && spot.source == "payload" {
            let mut parts = value;
            for inner in plugins {
                if inner.kind.name == "format.Identifier" {
                    parts = vec![TextPart::Id(self.id_kind(&inner))];
                } else if let Some(next) = self.text_parts(&inner, parts.clone()) {
                    parts = next;
                }
                inner.finish(self.report);
            }
            return parts;
        }
        for inner in plugins.iter().filter(|inner| inner.kind.role != Role::Formatter) {
            let message = "A filter inside of `format.Double` has no equivalent here.";
            self.report.mistake(inner.span, message).help("Put it before `format.Double`.");
        }
        let helper = format!("{}_of_double", side.to_ascii_lowercase());
        self.copied(&spot.source, &helper, settings);
        let outer = self.frame.clone();
        self.frame.instead = Some((spot.source.clone(), helper.clone()));
        self.list(&nodes);
        self.frame = outer;
        vec![TextPart::Column(helper)]
    }
}
