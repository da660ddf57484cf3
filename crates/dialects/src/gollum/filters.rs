//! Converts filters.

use regex::Regex;
use thalweg_config::Span;

use super::draft::{Step, Transform};
use super::made::{self, Made};
use super::modulators::{Modulation, Reroute};
use super::settings::Settings;
use super::version::Version;

/// The condition under which a message passes.
enum Condition {
    /// A condition in SQL.
    Sql(String),
    /// Always or never, known beforehand.
    Known(bool),
}

impl Modulation<'_> {
    pub(super) fn filter(&mut self, settings: &Settings) {
        let filtered = settings.text("FilteredStream").filter(|stream| !stream.is_empty());
        let filtered = filtered.map(|stream| (stream, settings.at("FilteredStream")));
        match settings.kind.name {
            "filter.Rate" => self.rate(settings, filtered),
            "filter.Sample" => self.sample(settings, filtered),
            _ => {
                let condition = self.condition(settings);
                self.by_condition(condition, filtered, settings.span);
            }
        }
    }

    fn by_condition(&mut self, condition: Condition, filtered: Option<(String, Span)>, span: Span) {
        let sql = match condition {
            Condition::Known(true) => return,
            Condition::Known(false) => {
                self.done.ends.get_or_insert(filtered);
                return;
            }
            Condition::Sql(sql) => sql,
        };
        match filtered {
            None => self.push(Step::Transform(Transform::new("filter", made::text(sql, span), span))),
            Some(filtered) => {
                let output = self.output("filtered");
                let mut options = Made::new(span);
                options.text(&output, format!("NOT ({sql})"), span);
                self.rerouting(Transform::new("route", options.done(), span), output, filtered);
            }
        }
    }

    /// Adds a transform with an output that leads to the pipeline of a stream.
    fn rerouting(&mut self, mut transform: Transform, output: String, (stream, span): (String, Span)) {
        if self.output(&output) != output {
            let message =
                format!("This is the second `{}` in one list whose messages go to a stream.", transform.kind);
            self.report
                .mistake(transform.span, message)
                .help("Put it into another plugin, such as the producer.");
            return;
        }
        transform.outputs.push(output.clone());
        self.push(Step::Transform(transform));
        self.done.reroutes.push(Reroute { output, stream, span, helpers: Vec::new() });
    }

    /// True if the messages here are in one of these streams. Reports a mistake and returns `None` if the
    /// stream is unknown.
    fn is_in(&mut self, settings: &Settings, names: &[(String, Span)]) -> Option<bool> {
        if names.is_empty() {
            return Some(false);
        }
        let Some(stream) = &self.place.stream else {
            let message = "These messages go to several streams, so they are in none of the listed ones yet, as in gollum.";
            self.report.remark(settings.span, message);
            return Some(false);
        };
        Some(names.iter().any(|(name, _)| name == stream))
    }

    fn rate(&mut self, settings: &Settings, filtered: Option<(String, Span)>) {
        let rate = settings.number("MessagesPerSec").unwrap_or(100);
        let ignored = settings.list("Ignore");
        if self.is_in(settings, &ignored) == Some(true) {
            return;
        }
        if rate <= 0 {
            return self.by_condition(Condition::Known(false), filtered, settings.span);
        }
        let mut options = Made::new(settings.span);
        options.number("rate", rate, settings.at("MessagesPerSec"));
        let excess = if filtered.is_some() { "route" } else { "drop" };
        options.text("on_excess", excess, settings.span);
        let mut transform = Transform::new("limit", options.done(), settings.span);
        transform.stateful = true;
        match filtered {
            Some(filtered) => self.rerouting(transform, "excess".to_owned(), filtered),
            None => self.push(Step::Transform(transform)),
        }
    }

    fn sample(&mut self, settings: &Settings, filtered: Option<(String, Span)>) {
        let take = settings.number("SampleRatePerGroup").unwrap_or(1);
        let group = settings.number("SampleGroupSize").unwrap_or(2);
        let ignored = settings.list("SampleIgnore");
        if self.is_in(settings, &ignored) == Some(true) {
            return;
        }
        if take >= group {
            return; // Every message of a group passes.
        }
        if take <= 0 {
            return self.by_condition(Condition::Known(false), filtered, settings.span);
        }
        let mut options = Made::new(settings.span);
        options.number("one_in", group, settings.at("SampleGroupSize"));
        if take != 1 {
            options.number("take", take, settings.at("SampleRatePerGroup"));
        }
        if filtered.is_some() {
            options.flag("rest", true, settings.span);
        }
        let mut transform = Transform::new("sample", options.done(), settings.span);
        transform.stateful = true;
        match filtered {
            Some(filtered) => self.rerouting(transform, "rest".to_owned(), filtered),
            None => self.push(Step::Transform(transform)),
        }
    }

    fn condition(&mut self, settings: &Settings) -> Condition {
        match settings.kind.name {
            "filter.None" => Condition::Known(false),
            "filter.Stream" => {
                let (block, only) = (settings.list("Block"), settings.list("Only"));
                let blocked = self.is_in(settings, &block);
                let allowed = self.is_in(settings, &only);
                Condition::Known(blocked == Some(false) && (only.is_empty() || allowed != Some(false)))
            }
            "filter.RegExp" => self.regular_expression(settings),
            "filter.JSON" => self.json_members(settings),
            "filter.Any" => {
                let inner = settings.plugins("AnyFilters");
                let mut parts = Vec::new();
                let mut always = false;
                for filter in self.read(&inner) {
                    if matches!(filter.kind.name, "filter.Rate" | "filter.Sample") {
                        let message = format!(
                            "`{}` counts messages, and cannot be one of several conditions.",
                            filter.kind.name
                        );
                        self.report
                            .mistake(filter.span, message)
                            .help("Put it before or after `filter.Any`.");
                        continue;
                    }
                    if filter.kind.role != super::tables::Role::Filter {
                        self.report.mistake(filter.span, format!("`{}` is not a filter.", filter.kind.name));
                        continue;
                    }
                    filter.idle(&["FilteredStream"], "for one of several conditions", self.report);
                    match self.condition(&filter) {
                        Condition::Sql(sql) => parts.push(format!("({sql})")),
                        Condition::Known(known) => always |= known,
                    }
                    filter.finish(self.report);
                }
                match parts.as_slice() {
                    _ if always => Condition::Known(true),
                    [] => Condition::Known(false),
                    parts => Condition::Sql(parts.join(" OR ")),
                }
            }
            _ => Condition::Known(true),
        }
    }

    fn regular_expression(&mut self, settings: &Settings) -> Condition {
        let column = self.column(settings, "Target");
        if column.is_some() {
            settings.idle(&["ApplyTo"], "beside `Target`", self.report);
        }
        let column = column.or_else(|| self.column(settings, "ApplyTo"));
        // gollum treats a missing field as empty text.
        let value = match column {
            None => "payload".to_owned(),
            Some(column) => format!("coalesce(CAST({} AS VARCHAR), '')", quoted(&column)),
        };
        let mut parts = Vec::new();
        for (name, negation) in [("ExpressionNot", "NOT "), ("Expression", "")] {
            let Some(pattern) = settings.raw_text(name).filter(|pattern| !pattern.is_empty()) else {
                continue;
            };
            if self.is_pattern(&pattern, settings.at(name)) {
                parts.push(format!("{negation}regexp_like({value}, '{}')", pattern.replace('\'', "''")));
            }
        }
        match parts.as_slice() {
            [] => Condition::Known(true),
            parts => Condition::Sql(parts.join(" AND ")),
        }
    }

    /// The condition of `filter.JSON`. A text that is no JSON object does not pass. Only texts, numbers and
    /// booleans are tested.
    fn json_members(&mut self, settings: &Settings) -> Condition {
        let json = match self.column(settings, "ApplyTo") {
            None => "payload".to_owned(),
            Some(column) => format!("CAST({} AS VARCHAR)", quoted(&column)),
        };
        let mut parts = vec![format!("regexp_like(coalesce(json_extract({json}), ''), '^\\s*\\{{')")];
        for (name, of_missing) in [("Reject", "false"), ("Accept", "true")] {
            for (member, pattern, span) in settings.map(name) {
                if self.is_pattern(&pattern, span) {
                    let pattern = pattern.replace('\'', "''");
                    let value = scalar(&json, &member, self.place.version);
                    let test = format!("coalesce(regexp_like({value}, '{pattern}'), {of_missing})");
                    parts.push(if name == "Reject" { format!("NOT {test}") } else { test });
                }
            }
        }
        Condition::Sql(parts.join(" AND "))
    }

    /// Returns true for a valid regular expression, and reports an invalid one.
    pub(super) fn is_pattern(&mut self, pattern: &str, span: Span) -> bool {
        let Err(error) = Regex::new(pattern) else { return true };
        let reason = error.to_string();
        let reason = reason.lines().next_back().unwrap_or("").trim().trim_start_matches("error: ").to_owned();
        self.report.mistake(span, format!("This is not a regular expression: {reason}."));
        false
    }
}

/// Returns SQL for a text, number or boolean in JSON, as text; NULL if there is none. A member whose name is
/// the whole path comes first, as in gollum from v0.5 on.
fn scalar(json: &str, path: &str, version: Version) -> String {
    let of = |path: &str| {
        let path = path.replace('\'', "''");
        format!(
            "CASE WHEN regexp_like(json_extract({json}, '{path}'), '^\\s*[\\[{{n]') THEN NULL \
             ELSE json_get({json}, '{path}') END"
        )
    };
    let step = |name: &str| format!("[{}]", serde_json::Value::from(name));
    if !path.contains(['/', '[']) {
        return of(&step(path));
    }
    let nested = path.split('/').map(|part| match part.split_once('[') {
        Some(("", index)) => format!("[{index}"),
        Some((name, index)) => format!("{}[{index}", step(name)),
        None => step(part),
    });
    let nested: String = nested.collect();
    match version {
        Version::V04 => of(&nested),
        _ => format!("coalesce({}, {})", of(&step(path)), of(&nested)),
    }
}

/// Returns a column's name in SQL.
pub(super) fn quoted(column: &str) -> String {
    format!("\"{}\"", column.replace('"', "\"\""))
}
