//! Turns plugins that meet in streams into a graph of branches.
//!
//! In gollum a message carries the name of its stream, and each step looks the name up. Here all of this is
//! known beforehand: a stream is a branch, named after its router or itself, that leads to the sinks of its
//! producers. A sink that depends on the stream's name, for example in its path, is made once for each
//! stream. Branches are made on demand, beginning at the consumers, so unreachable ones never exist.

mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use thalweg_config::Span;

use super::consumers;
use super::draft::{Draft, End, Feed, Step, Transform, Way};
use super::made::{self, Made};
use super::modulators::{ListContext, Modulated, Modulation, Reroute, modulate};
use super::plugins::{Plugin, Plugins};
use super::producers;
use super::report::Report;
use super::tables::Role;
use super::version::Version;

const LOGS: &str = "_GOLLUM_";
const TRACES: &str = "_TRACE_";
const DROPPED: &str = "_DROPPED_";
const ALL: &str = "*";

/// Builds the draft.
pub(super) fn draft(plugins: &Plugins, version: Version, report: &mut Report) -> Draft {
    let mut names = BTreeSet::new();
    for plugin in plugins.producers.iter().chain(&plugins.routers) {
        names.extend(plugin.streams().into_iter().map(|(stream, _)| stream));
    }
    // A producer of all streams may have a name for one that no other plugin mentions.
    for producer in plugins.producers.iter().filter(|producer| is_on_all(producer)) {
        names.extend(producers::mapped_streams(&producer.settings));
    }
    let streams: Vec<String> =
        names.into_iter().filter(|name| ![ALL, LOGS, TRACES, ""].contains(&name.as_str())).collect();
    let mut builder = Builder {
        plugins,
        report,
        draft: Draft::default(),
        streams: streams.into(),
        version,
        branches: BTreeMap::new(),
        ends: BTreeMap::new(),
        sinks: BTreeMap::new(),
        used: BTreeSet::new(),
        routers: BTreeSet::new(),
        distributing: Vec::new(),
    };
    builder.consumers();
    builder.internal();
    builder.traces();
    builder.leftovers();
    builder.draft
}

/// True if a producer listens to all streams.
fn is_on_all(producer: &Plugin) -> bool {
    producer.streams().iter().any(|(name, _)| name == ALL)
}

/// Identifies a target: the producer, the stream and the timeout (if they matter), and the stream that the
/// messages of a spool came from.
type EndKey = (usize, Option<String>, i64, Option<String>);

struct Builder<'a> {
    plugins: &'a Plugins,
    report: &'a mut Report,
    draft: Draft,
    streams: Rc<[String]>,
    version: Version,
    branches: BTreeMap<(String, Option<String>), usize>,
    ends: BTreeMap<EndKey, Option<End>>,
    sinks: BTreeMap<(usize, Option<String>), usize>,
    used: BTreeSet<usize>,
    routers: BTreeSet<usize>,
    /// The streams whose routers lead to the one that is being built.
    distributing: Vec<String>,
}

impl Builder<'_> {
    fn consumers(&mut self) {
        let plugins = self.plugins;
        for consumer in &plugins.consumers {
            let made = consumers::source(&consumer.settings, self.report);
            let source = self.draft.source(&consumer.id, consumer.span, made.node);
            self.draft.sources[source].notes = made.notes;
            if let Some((folder, span)) = made.state {
                match &self.draft.state {
                    Some((first, _)) if *first != folder => {
                        self.report.remark(span, format!("All positions are kept in one folder, `{first}`."));
                    }
                    _ => self.draft.state = Some((folder, span)),
                }
            }
            let streams = consumer.streams();
            let stream = match streams.as_slice() {
                [(stream, _)] => Some(stream.clone()),
                _ => None,
            };
            let place = ListContext {
                role: Role::Consumer,
                stream,
                previous: None,
                streams: self.streams.clone(),
                version: self.version,
            };
            let mut modulated = modulate(&consumer.list, place, self.report);
            modulated.steps.splice(0..0, made.steps);
            let routines = consumer.settings.number("ModulatorRoutines").filter(|count| *count > 0);
            let at = consumer.settings.at("ModulatorRoutines");
            consumer.settings.finish(self.report);
            let has_list = !modulated.steps.is_empty() || modulated.ends.is_some();
            if !has_list {
                if routines.is_some() {
                    self.report.remark(at, "`ModulatorRoutines` has no effect without `Modulators`.");
                }
                for (stream, span) in streams {
                    if let Some(branch) = self.stream(&stream, None, span) {
                        self.feed(branch, Feed::Source(source));
                    }
                }
                continue;
            }
            let branch = self.draft.branch(format!("{}-steps", consumer.id), 1, consumer.span);
            self.feed(branch, Feed::Source(source));
            if let Some(branch) = self.draft.at(branch) {
                branch.concurrency = routines.map(|count| (count, at));
            }
            let origin = match streams.as_slice() {
                [(stream, _)] => Some(stream.clone()),
                _ => None,
            };
            let ended = modulated.ends.is_some();
            self.modulated(branch, modulated, origin.as_deref());
            if !ended {
                for (stream, span) in streams {
                    if let Some(next) = self.stream(&stream, None, span) {
                        self.leads(branch, End::Branch(next));
                    }
                }
            }
        }
    }

    fn feed(&mut self, branch: usize, feed: Feed) {
        if let Some(branch) = self.draft.at(branch)
            && !branch.from.contains(&feed)
        {
            branch.from.push(feed);
        }
    }

    fn leads(&mut self, branch: usize, end: End) {
        if let Some(branch) = self.draft.at(branch)
            && !branch.to.contains(&end)
        {
            branch.to.push(end);
        }
    }

    /// Puts the transforms of a list into a branch, and leads the named outputs to their streams.
    fn modulated(&mut self, branch: usize, modulated: Modulated, stream: Option<&str>) {
        if let Some(branch) = self.draft.at(branch) {
            branch.steps = modulated.steps;
        }
        for Reroute { output, stream: to, span, helpers } in modulated.reroutes {
            let Some(target) = self.stream(&to, stream, span) else { continue };
            let feed = Feed::Output(branch, output);
            if helpers.is_empty() {
                self.feed(target, feed);
                continue;
            }
            let between = self.draft.branch(format!("to-{to}"), 0, span);
            let names = helpers.iter().map(|name| made::text(name, span)).collect();
            if let Some(between) = self.draft.at(between) {
                between.steps.push(Step::Transform(Transform::new("drop", made::list(names, span), span)));
            }
            self.feed(between, feed);
            self.leads(between, End::Branch(target));
        }
        match modulated.ends {
            None => {}
            Some(Some((to, span))) => {
                if let Some(target) = self.stream(&to, stream, span) {
                    self.leads(branch, End::Branch(target));
                }
            }
            Some(None) => {
                let span = self.draft.at(branch).map_or_else(Span::default, |branch| branch.span);
                let nobody = self.draft.nobody(span);
                self.leads(branch, nobody);
                if let Some(branch) = self.draft.at(branch) {
                    branch.notes.push("A filter lets nothing pass.".to_owned());
                }
            }
        }
    }

    /// Returns the producers that listen to a stream.
    fn listeners(&self, stream: &str) -> Vec<usize> {
        let listens = |plugin: &Plugin| {
            let streams = plugin.streams();
            let has = |wanted: &str| streams.iter().any(|(name, _)| name == wanted);
            match stream {
                ALL => streams.iter().any(|(name, _)| name != LOGS),
                LOGS | DROPPED | TRACES => has(stream),
                _ => has(stream) || has(ALL),
            }
        };
        let producers = self.plugins.producers.iter().enumerate();
        producers.filter(|(_, plugin)| listens(plugin)).map(|(index, _)| index).collect()
    }

    fn spools(&self, producer: usize) -> bool {
        self.plugins.producers[producer].settings.kind.name == "producer.Spooling"
    }

    /// True if the stream that messages came from matters to a producer.
    fn wants_origin(&self, producer: usize) -> bool {
        self.spools(producer) || self.plugins.producers[producer].list.iter().any(ends::names_previous)
    }

    /// Returns the branch of a stream. If the stream leads to a spool, each stream of origin has its own
    /// branch.
    fn stream(&mut self, stream: &str, origin: Option<&str>, span: Span) -> Option<usize> {
        if stream.is_empty() {
            self.report.mistake(span, "A stream without a name leads nowhere.");
            return None;
        }
        let listeners = self.listeners(stream);
        let origin = origin.filter(|_| listeners.iter().any(|&producer| self.wants_origin(producer)));
        let key = (stream.to_owned(), origin.map(str::to_owned));
        if let Some(branch) = self.branches.get(&key) {
            return Some(*branch);
        }
        let plugins = self.plugins;
        let router =
            plugins.routers.iter().position(|router| router.streams().iter().any(|(name, _)| name == stream));
        let plugin = router.map(|index| &plugins.routers[index]);
        let name = plugin.map_or(stream, |router| router.id.as_str());
        let name = origin.map_or(name.to_owned(), |origin| format!("{name}-{origin}"));
        let branch = self.draft.branch(name, 2, plugin.map_or(span, |router| router.span));
        self.branches.insert(key, branch);
        self.routers.extend(router);

        let mut timeout = 0;
        if let Some(router) = plugin {
            let place = ListContext {
                role: router.list_role,
                stream: Some(stream.to_owned()),
                previous: None,
                streams: self.streams.clone(),
                version: self.version,
            };
            let modulated = modulate(&router.list, place, self.report);
            let ended = modulated.ends.is_some();
            self.modulated(branch, modulated, Some(stream));
            timeout = router.settings.number("TimeoutMs").unwrap_or(0);
            if ended {
                return Some(branch);
            }
        }
        let kind = plugin.map_or("router.Broadcast", |router| router.settings.kind.name);
        match (kind, plugin) {
            ("router.Distribute", Some(router)) => {
                self.distribute(branch, router, stream, origin, timeout, &listeners)
            }
            ("router.Metadata", Some(router)) => {
                self.by_metadata(branch, router, stream);
                self.broadcast(branch, stream, origin, timeout, &listeners);
            }
            ("router.RoundRobin" | "router.Random", _) => {
                self.broadcast(branch, stream, origin, timeout, &listeners);
                if let Some(branch) = self.draft.at(branch).filter(|branch| branch.to.len() > 1) {
                    branch.way = if kind == "router.Random" { Way::Random } else { Way::RoundRobin };
                }
            }
            _ => self.broadcast(branch, stream, origin, timeout, &listeners),
        }
        if let Some(router) = plugin {
            router.settings.finish(self.report);
        }
        if self.draft.at(branch).is_some_and(|branch| branch.to.is_empty()) {
            let nobody = self.draft.nobody(span);
            self.leads(branch, nobody);
            if let Some(branch) = self.draft.at(branch) {
                branch.notes.push(format!("No producer listens to the stream `{stream}`."));
            }
        }
        Some(branch)
    }

    fn broadcast(
        &mut self,
        branch: usize,
        stream: &str,
        origin: Option<&str>,
        timeout: i64,
        listeners: &[usize],
    ) {
        for &producer in listeners {
            if let Some(end) = self.end(producer, stream, origin, timeout) {
                self.leads(branch, end);
            }
        }
    }

    fn distribute(
        &mut self,
        branch: usize,
        router: &Plugin,
        stream: &str,
        origin: Option<&str>,
        timeout: i64,
        listeners: &[usize],
    ) {
        let targets = router.settings.list("TargetStreams");
        if targets.is_empty() {
            let message =
                format!("`{}` distributes to no streams, so its messages are discarded.", router.id);
            self.report.remark(router.span, message);
        }
        self.distributing.push(stream.to_owned());
        for (target, span) in targets {
            if target == stream {
                self.broadcast(branch, stream, origin, timeout, listeners);
            } else if self.distributing.contains(&target) {
                let message = format!(
                    "A message would go round in a circle for ever: `{stream}` leads to `{target}`, which leads back to `{stream}`."
                );
                self.report
                    .mistake(span, message)
                    .help("Remove one of the targets. gollum reported a routing loop for each message.");
            } else if let Some(target) = self.stream(&target, Some(stream), span) {
                self.leads(branch, End::Branch(target));
            }
        }
        self.distributing.pop();
    }

    /// Sends messages to the stream that a field names. Messages without the field stay on this branch.
    /// Messages of a stream without a producer go to the producers that listen to all streams.
    fn by_metadata(&mut self, branch: usize, router: &Plugin, stream: &str) {
        let settings = &router.settings;
        let span = router.span;
        let path = settings.text_or("Key", "Stream");
        let field = super::modulators::column(&path, settings.at("Key"), self.report);
        let steps = self.draft.at(branch).map(|branch| std::mem::take(&mut branch.steps)).unwrap_or_default();
        let place = ListContext {
            role: Role::Router,
            stream: Some(stream.to_owned()),
            previous: None,
            streams: self.streams.clone(),
            version: self.version,
        };
        let done = Modulated { steps, ..Modulated::default() };
        let mut modulation = Modulation::new(place, done, self.report);
        let mut options = Made::new(span);
        options.text("field", &field, settings.at("Key"));
        modulation.route_by(options, &[], span);
        let others = modulation.output("other-streams");
        let text = format!("coalesce(CAST({} AS VARCHAR), '')", super::filters::quoted(&field));
        let condition = format!("{text} NOT IN ('', '{}')", stream.replace('\'', "''"));
        let mut options = Made::new(span);
        options.text(&others, condition, settings.at("Key"));
        let mut transform = Transform::new("route", options.done(), span);
        transform.outputs.push(others.clone());
        modulation.push(Step::Transform(transform));
        let done = modulation.done;
        self.modulated(branch, done, Some(stream));
        let rest = self.draft.branch(format!("{}-others", router.id), 2, span);
        self.feed(rest, Feed::Output(branch, others));
        let all = self.plugins.producers.iter().enumerate();
        let all: Vec<usize> =
            all.filter(|(_, producer)| is_on_all(producer)).map(|(index, _)| index).collect();
        // The name of the stream is in the field.
        self.broadcast(rest, &format!("{{{field}}}"), Some(stream), 0, &all);
        if all.is_empty() {
            let nobody = self.draft.nobody(span);
            self.leads(rest, nobody);
            if let Some(rest) = self.draft.at(rest) {
                rest.notes.push("Streams without a producer.".to_owned());
            }
        }
    }

    /// Adds gollum's own log, if a producer listens to it.
    fn internal(&mut self) {
        let listener = self
            .plugins
            .producers
            .iter()
            .find_map(|producer| producer.streams().into_iter().find(|(name, _)| name == LOGS));
        let Some((_, span)) = listener else { return };
        let node = made::component("internal_logs", span, Made::new(span).done());
        let source = self.draft.source("internal-logs", span, node);
        let mut names = Made::new(span);
        names.text("level", "Level", span).text("time", "Time", span).text("target", "PluginType", span);
        let branch = self.draft.branch("internal-logs-steps", 1, span);
        let mut rename = Transform::new("rename", names.done(), span);
        rename.notes.push("thalweg's own log, with gollum's names for its fields.".to_owned());
        // gollum's other levels have the same names.
        let mut level = Made::new(span);
        level.text("field", "Level", span).text("search", "warn", span).text("with", "warning", span);
        let level = Transform::new("replace", level.done(), span);
        if let Some(branch) = self.draft.at(branch) {
            branch.steps.extend([rename, level].map(Step::Transform));
        }
        self.feed(branch, Feed::Source(source));
        if let Some(logs) = self.stream(LOGS, None, span) {
            self.leads(branch, End::Branch(logs));
        }
    }

    /// Sends the messages that cannot be processed to the producers of traces.
    fn traces(&mut self) {
        let streams = self.plugins.producers.iter().flat_map(Plugin::streams);
        let Some((_, span)) = streams.into_iter().find(|(name, _)| name == TRACES) else { return };
        let branch = self.draft.branch("traces", 1, span);
        let mut fields = Made::new(span);
        fields.text("Payload", "payload", span);
        let mut encode = Made::new(span);
        encode.text("format", "json", span);
        let mut set = Transform::new("set", fields.done(), span);
        set.notes.push("Messages that could not be processed, each with the reason.".to_owned());
        if let Some(branch) = self.draft.at(branch) {
            branch.steps.push(Step::Transform(set));
            branch.steps.push(Step::Transform(Transform::new("encode", encode.done(), span)));
            branch.from.push(Draft::feed_of_later());
        }
        self.draft.traces = Some(branch);
        if let Some(next) = self.stream(TRACES, None, span) {
            self.leads(branch, End::Branch(next));
        }
    }

    /// Reports the plugins that no message reaches.
    fn leftovers(&mut self) {
        let plugins = self.plugins;
        for (index, producer) in plugins.producers.iter().enumerate() {
            if self.used.contains(&index) {
                continue;
            }
            let message = format!("Nothing is sent to the streams of `{}`, so it is left out.", producer.id);
            self.report.remark(producer.span, message);
            // The settings are read anyway, to report their mistakes.
            let place = ListContext {
                role: Role::Producer,
                stream: Some(String::new()),
                previous: None,
                streams: self.streams.clone(),
                version: self.version,
            };
            modulate(&producer.list, place, self.report);
            if !self.spools(index) {
                producers::sink(&producer.settings, Some(""), self.version, self.report);
            }
        }
        for (index, router) in
            plugins.routers.iter().enumerate().filter(|(index, _)| !self.routers.contains(index))
        {
            let first = plugins.routers[..index].iter().find(|first| {
                first.streams().iter().any(|(name, _)| router.streams().iter().any(|(own, _)| own == name))
            });
            let message = match first {
                Some(first) => format!(
                    "The stream of `{}` has a router already, `{}`: this one is left out.",
                    router.id, first.id
                ),
                None => format!("Nothing is sent to the stream of `{}`, so it is left out.", router.id),
            };
            self.report.remark(router.span, message);
            let place = ListContext {
                role: router.list_role,
                stream: Some(String::new()),
                previous: None,
                streams: self.streams.clone(),
                version: self.version,
            };
            modulate(&router.list, place, self.report);
        }
    }
}
