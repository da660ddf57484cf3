//! Turns a list of filters and formatters into transforms.

use std::borrow::Cow;
use std::rc::Rc;

use thalweg_config::{Node, Span};

use super::draft::{Step, Transform, push};
use super::made::Made;
use super::report::Report;
use super::settings::Settings;
use super::tables::{self, Role};
use super::version::Version;

/// Messages that leave a list by a named output and go to a stream.
#[derive(Debug, Clone)]
pub(super) struct Reroute {
    pub(super) output: String,
    pub(super) stream: String,
    pub(super) span: Span,
    /// Columns that were added only to choose the stream; they are dropped afterwards.
    pub(super) helpers: Vec<String>,
}

/// The result of converting a list.
#[derive(Debug, Default)]
pub(super) struct Modulated {
    pub(super) steps: Vec<Step>,
    pub(super) reroutes: Vec<Reroute>,
    /// Set if no message reaches the end of the list. All messages then go to this stream, or nowhere.
    pub(super) ends: Option<Option<(String, Span)>>,
}

/// The surroundings of a list.
#[derive(Debug, Clone)]
pub(super) struct ListContext {
    pub(super) role: Role,
    /// The stream of its messages, if there is exactly one.
    pub(super) stream: Option<String>,
    /// The stream that they were in before, if it is known.
    pub(super) previous: Option<String>,
    /// The streams that messages can be sent to.
    pub(super) streams: Rc<[String]>,
    /// The version that the configuration was written for.
    pub(super) version: Version,
}

/// The columns that a formatter reads and writes.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) source: String,
    pub(super) target: String,
    pub(super) skip_empty: bool,
    pub(super) span: Span,
}

/// Settings that an enclosing formatter imposes on the formatters inside it.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) source: Option<String>,
    pub(super) target: Option<String>,
    /// A column and its replacement.
    pub(super) instead: Option<(String, String)>,
}

/// Converts lists.
pub(super) struct Modulation<'a> {
    pub(super) report: &'a mut Report,
    pub(super) place: ListContext,
    pub(super) frame: Frame,
    pub(super) done: Modulated,
    /// Columns that the current plugin needs only for itself.
    pub(super) helpers: Vec<String>,
}

/// Turns a list of plugins into transforms.
pub(super) fn modulate(nodes: &[Node], place: ListContext, report: &mut Report) -> Modulated {
    let mut modulation = Modulation::new(place, Modulated::default(), report);
    modulation.list(nodes);
    modulation.done
}

impl<'a> Modulation<'a> {
    /// Begins a list after these steps.
    pub(super) fn new(place: ListContext, done: Modulated, report: &'a mut Report) -> Self {
        Self { report, place, frame: Frame::default(), done, helpers: Vec::new() }
    }
}

impl Modulation<'_> {
    pub(super) fn list(&mut self, nodes: &[Node]) {
        for settings in self.read(nodes) {
            let before = self.done.steps.len();
            let ended = self.done.ends.is_some();
            match settings.kind.role {
                Role::Filter => self.filter(&settings),
                _ => self.formatter(&settings),
            }
            for helper in std::mem::take(&mut self.helpers) {
                self.dropped(&helper, &settings);
            }
            settings.finish(self.report);
            if ended {
                // No message gets here; the plugin was read only to report its mistakes.
                self.done.steps.truncate(before);
            }
        }
    }

    /// Returns the plugins of a list, each with its settings.
    pub(super) fn read(&mut self, nodes: &[Node]) -> Vec<Settings> {
        let mut found = Vec::new();
        for node in nodes {
            let (name, span, entries) = match (node.as_str(), node.entries()) {
                (Some(name), _) => (name, node.span, &[][..]),
                (None, [(key, settings)]) => {
                    if settings.as_mapping().is_none() && !settings.is_null() {
                        let message = format!(
                            "The settings of `{}` are a mapping, but this is {}.",
                            key.name,
                            settings.kind()
                        );
                        self.report.mistake(settings.span, message);
                        continue;
                    }
                    (key.name.as_str(), key.span, settings.entries())
                }
                (None, [(first, nothing), (second, _), ..]) if nothing.is_null() => {
                    let message = format!("`{}` is next to `{}` and not inside it.", second.name, first.name);
                    let help = format!("Indent the settings of `{}` further than its name.", first.name);
                    self.report.mistake(second.span, message).help(help);
                    continue;
                }
                (None, [_, (second, _), ..]) => {
                    let message = format!("`{}` is a second plugin in one element of the list.", second.name);
                    self.report.mistake(second.span, message).help("Begin each plugin with `- `.");
                    continue;
                }
                _ => {
                    let message = format!(
                        "A plugin is a name, or a name with its settings, but this is {}.",
                        node.kind()
                    );
                    self.report.mistake(node.span, message);
                    continue;
                }
            };
            if let Some(kind) = self.kind(name, span) {
                found.push(Settings::new(kind, span, entries, self.report));
            }
        }
        found
    }

    fn kind(&mut self, name: &str, span: Span) -> Option<&'static tables::PluginKind> {
        let allowed = |role: Role| match self.place.role {
            Role::Router => role == Role::Filter,
            _ => matches!(role, Role::Filter | Role::Formatter),
        };
        if let Some(kind) = tables::kind(name) {
            if let Some(why) = kind.refused {
                self.report.mistake(span, format!("`{}` cannot run here yet.", kind.name)).help(why);
                return None;
            }
            if allowed(kind.role) {
                return Some(kind);
            }
            let what = if self.place.role == Role::Router {
                "A router has filters only"
            } else {
                "Only filters and formatters are allowed here"
            };
            self.report.mistake(span, format!("{what}, and `{name}` is a {}.", kind.role.word()));
            return None;
        }
        let known: Vec<&str> =
            tables::kinds().filter(|kind| allowed(kind.role)).map(|kind| kind.name).collect();
        let message = format!("There is no filter or formatter called `{name}`.");
        let name = if name.contains('.') { name.to_owned() } else { format!("format.{name}") };
        self.report.unknown(span, message, &name, known, "");
        None
    }

    pub(super) fn push(&mut self, step: Step) {
        push(&mut self.done.steps, step);
    }

    pub(super) fn transform(&mut self, kind: &'static str, options: Made, span: Span) {
        self.push(Step::Transform(Transform::new(kind, options.done(), span)));
    }

    /// Returns a name for an output that the list does not have yet.
    pub(super) fn output(&self, wanted: &str) -> String {
        let taken = |name: &str| {
            self.done.steps.iter().any(|step| step.outputs().iter().any(|output| output == name))
        };
        let mut name = wanted.to_owned();
        let mut number = 1;
        while taken(&name) {
            number += 1;
            name = format!("{wanted}-{number}");
        }
        name
    }

    /// Adds a transform that sends messages to the stream that a column names.
    pub(super) fn route_by(&mut self, mut options: Made, helpers: &[String], span: Span) {
        let mut outputs = Made::new(span);
        let mut reroutes = Vec::new();
        let streams = self.place.streams.clone();
        for stream in streams.iter().filter(|stream| self.place.stream.as_ref() != Some(stream)) {
            let mut wanted = valid_name(stream);
            while reroutes.iter().any(|reroute: &Reroute| reroute.output == wanted) {
                wanted.push('_');
            }
            let output = self.output(&wanted);
            outputs.text(&output, stream, span);
            let helpers = helpers.to_vec();
            reroutes.push(Reroute { output, stream: stream.clone(), span, helpers });
        }
        if reroutes.is_empty() {
            self.report.remark(span, "There is no other stream that messages could go to.");
            return;
        }
        options.put("outputs", outputs.done());
        let mut transform = Transform::new("route_by", options.done(), span);
        transform.outputs = reroutes.iter().map(|reroute| reroute.output.clone()).collect();
        self.push(Step::Transform(transform));
        self.done.reroutes.extend(reroutes);
    }

    /// Returns the columns of a formatter.
    pub(super) fn spot(&mut self, settings: &Settings) -> Spot {
        let mut source = self.column(settings, "Source");
        let mut target = self.target(settings, "Target");
        if source.is_none() && target.is_none() {
            source = self.column(settings, "ApplyTo");
            target = self.target(settings, "ApplyTo");
        } else {
            settings.idle(&["ApplyTo"], "where `Source` or `Target` is given", self.report);
        }
        let source = self.frame.source.clone().or(source).unwrap_or_else(|| "payload".to_owned());
        let target = target.or_else(|| self.frame.target.clone()).unwrap_or_else(|| "payload".to_owned());
        let instead = |column: String| match &self.frame.instead {
            Some((from, to)) if *from == column => to.clone(),
            _ => column,
        };
        Spot {
            source: instead(source),
            target: instead(target),
            skip_empty: settings.flag("SkipIfEmpty").unwrap_or(false),
            span: settings.span,
        }
    }

    /// Returns the column of a metadata path that is read, or `None` for the payload.
    pub(super) fn column(&mut self, settings: &Settings, name: &str) -> Option<String> {
        let path = settings.text(name).filter(|path| !path.is_empty())?;
        Some(self.read_path(&path, settings.at(name)))
    }

    /// Returns the column of a metadata path that is read. An element of a list is copied to a helper first.
    pub(super) fn read_path(&mut self, path: &str, span: Span) -> String {
        // Fields of earlier versions were not nested, so a bracket was a part of a name.
        let is_nested = self.place.version == Version::V06;
        let Some((list, way)) = element(path).filter(|_| is_nested) else {
            return column(path, span, self.report);
        };
        let helper = format!("element_{}", self.helpers.len() + 1);
        let list = column(list, span, self.report);
        let mut options = Made::new(span);
        options.text(&helper, element_of(&list, way), span);
        self.transform("set", options, span);
        self.helpers.push(helper.clone());
        helper
    }

    /// Returns the column of a metadata path that is written, or `None` for the payload.
    fn target(&mut self, settings: &Settings, name: &str) -> Option<String> {
        let path = settings.text(name).filter(|path| !path.is_empty())?;
        if self.place.version < Version::V06 || element(&path).is_none() {
            return Some(column(&path, settings.at(name), self.report));
        }
        let message =
            format!("`{path}` is an element of a list, which gollum does not write: nothing is changed.");
        self.report.remark(settings.at(name), message);
        let helper = format!("element_{}", self.helpers.len() + 1);
        self.helpers.push(helper.clone());
        Some(helper)
    }
}

impl Spot {
    /// Returns the options that name a transform's columns.
    pub(super) fn options(&self, settings: &Settings) -> Made {
        let mut options = Made::new(self.span);
        if self.source != "payload" {
            options.text("field", &self.source, settings.at("Source"));
        }
        if self.target != self.source {
            options.text("into", &self.target, settings.at("Target"));
        }
        if self.skip_empty {
            options.flag("skip_empty", true, settings.at("SkipIfEmpty"));
        }
        options
    }

    /// Returns the same options for a transform that writes several columns below the target.
    pub(super) fn options_with_prefix(&self, settings: &Settings, prefix: &str) -> Made {
        let mut options = Spot { target: self.source.clone(), ..self.clone() }.options(settings);
        let below = if self.target == "payload" { String::new() } else { format!("{}.", self.target) };
        let prefix = below + prefix;
        if !prefix.is_empty() {
            options.text("prefix", prefix, settings.at("Target"));
        }
        options
    }
}

/// Returns the column for a path of gollum's metadata.
pub(super) fn column(path: &str, span: Span, report: &mut Report) -> String {
    let path = path.trim_matches('/');
    let column = match path.split_once('/') {
        Some((first, rest)) => format!("{}.{}", own_name(first), rest.replace('/', ".")),
        None => own_name(path).into_owned(),
    };
    if column != path.replace('/', ".") {
        report.remark(span, format!("`{path}` is called `{column}` here."));
    }
    column
}

/// Returns the name that a field of gollum has here. Some names mean something else in thalweg, and some
/// characters have a meaning in templates.
pub(super) fn own_name(name: &str) -> Cow<'_, str> {
    if matches!(name, "payload" | "now" | "meta" | "whole_message") {
        return Cow::Owned(format!("{name}_"));
    }
    match name.contains(['{', '}', ':']) {
        true => Cow::Owned(name.replace(['{', '}', ':'], "_")),
        false => Cow::Borrowed(name),
    }
}

/// Takes the path of an element of a list apart: the list, and the way from there to the element.
fn element(path: &str) -> Option<(&str, &str)> {
    let at = path.find('[')?;
    path[at..].contains(']').then(|| path.split_at(at))
}

/// Returns SQL for the element of a list of this column.
fn element_of(column: &str, way: &str) -> String {
    let mut path = String::new();
    for (index, part) in way.split('[').enumerate() {
        let (number, names) = part.split_once(']').unwrap_or(("", part));
        if index > 0 {
            path.push_str(&format!("[{number}]"));
        }
        for name in names.split('/').filter(|name| !name.is_empty()) {
            path.push_str(&format!("[{}]", serde_json::Value::from(name)));
        }
    }
    format!("json_get(CAST({} AS VARCHAR), '{}')", super::filters::quoted(column), path.replace('\'', "''"))
}

/// Turns a name into one that a component may have.
pub(super) fn valid_name(name: &str) -> String {
    let name = match name {
        "*" => "all",
        "_GOLLUM_" => "gollum-log",
        "errors" => "errors-stream",
        name => name,
    };
    let valid =
        |character: char| if character.is_alphanumeric() || character == '_' { character } else { '-' };
    let name: String = name.chars().map(valid).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() }
}
