//! Finds the target of a stream's messages at a producer.

use thalweg_config::Node;

use super::{ALL, Builder};
use crate::gollum::draft::{End, Feed, Step, Way, push};
use crate::gollum::modulators::{ListContext, modulate, valid_name};
use crate::gollum::plugins::{Plugin, get};
use crate::gollum::producers;
use crate::gollum::tables::Role;

impl Builder<'_> {
    /// Returns the target of a stream's messages at a producer: its sink, with its modulators before it and
    /// its fallback beside it.
    pub(super) fn end(
        &mut self,
        producer: usize,
        stream: &str,
        origin: Option<&str>,
        router_timeout: i64,
    ) -> Option<End> {
        let plugin = &self.plugins.producers[producer];
        let settings = &plugin.settings;
        self.used.insert(producer);
        let no_fallback = producers::no_fallback(settings);
        if let Some(why) = no_fallback {
            settings.idle(&["FallbackStream", "ChannelTimeoutMs"], why, self.report);
        }
        let own =
            if producers::has_queue(settings) { settings.number("ChannelTimeoutMs").unwrap_or(0) } else { 0 };
        let timeout = match router_timeout {
            _ if !producers::has_queue(settings) => 0,
            0 => own,
            timeout => timeout,
        };
        let fallback = settings.text("FallbackStream").filter(|name| !name.is_empty());
        let fallback = fallback.filter(|_| no_fallback.is_none());
        // If the producer listens to its own fallback stream, it is left out there: gollum ended such a loop
        // after one round.
        let own_fallback = fallback.as_ref().is_some_and(|name| self.listeners(name).contains(&producer));
        if fallback.as_deref() == Some(stream) {
            let message = format!(
                "`{}` listens to its own fallback: messages that fail there have no other target.",
                plugin.id
            );
            self.report.remark(settings.at("FallbackStream"), message);
        }
        let fallback = fallback.filter(|name| name != stream);
        let depends = producers::depends_on_stream(settings)
            || names_stream(&plugin.list)
            || self.wants_origin(producer)
            || own_fallback;
        // A fallback to a spool brings messages back to the stream they came from.
        let leads_to_spool = fallback
            .as_ref()
            .is_some_and(|name| self.listeners(name).iter().any(|&producer| self.wants_origin(producer)));
        let by_stream = (depends || leads_to_spool).then(|| stream.to_owned());
        let origin_counts = self.wants_origin(producer);
        let key = (producer, by_stream, timeout, origin.filter(|_| origin_counts).map(str::to_owned));
        if let Some(end) = self.ends.get(&key) {
            return *end;
        }
        let place = ListContext {
            role: Role::Producer,
            stream: Some(stream.to_owned()),
            previous: origin.map(str::to_owned),
            streams: self.streams.clone(),
            version: self.version,
        };
        let mut modulated = modulate(&plugin.list, place, self.report);
        let packing = match modulated.ends {
            None => self.own_steps(plugin, stream, &mut modulated.steps),
            Some(_) => Vec::new(),
        };
        let several = self.is_on_several(plugin);
        let name = if let Some(origin) = &key.3 {
            format!("{}-{}-{origin}", plugin.id, shown(stream))
        } else if key.1.is_some() && several {
            format!("{}-{}", plugin.id, shown(stream))
        } else {
            plugin.id.clone()
        };
        let mut end = match &modulated.ends {
            Some(None) => {
                self.ends.insert(key, None);
                return None;
            }
            Some(Some(_)) => None,
            None if self.spools(producer) => Some(self.spool(plugin, origin)?),
            None => {
                let sink = End::Sink(self.sink(producer, stream, several));
                Some(self.packed(&name, plugin, packing, sink))
            }
        };
        if !modulated.steps.is_empty() || modulated.ends.is_some() {
            let branch = self.draft.branch(format!("{name}-steps"), 0, plugin.span);
            self.modulated(branch, modulated, Some(stream));
            if let Some(end) = end {
                self.leads(branch, end);
            }
            end = Some(End::Branch(branch));
        }
        let mut end = end?;
        if let Some(name) = fallback {
            let at = settings.at("FallbackStream");
            if let Some(next) = self.stream(&name, Some(stream), at) {
                if timeout < 0 {
                    let message =
                        "Messages without capacity go to the fallback at once here and are not dropped.";
                    self.report.remark(settings.at("ChannelTimeoutMs"), message);
                }
                end = self.failover(plugin, end, End::Branch(next), timeout, &name);
            }
        } else if timeout != 0 {
            let nobody = self.draft.nobody(settings.at("ChannelTimeoutMs"));
            end = self.failover(plugin, end, nobody, timeout, "nobody");
        }
        settings.finish(self.report);
        self.ends.insert(key, Some(end));
        Some(end)
    }

    /// Adds the transforms that a producer needs beside its modulators. Returns those that make files.
    fn own_steps(&mut self, plugin: &Plugin, stream: &str, steps: &mut Vec<Step>) -> Vec<Step> {
        let own = producers::own_steps(&plugin.settings, stream, self.version, self.report);
        steps.splice(0..0, own.before);
        if own.after.iter().any(Step::makes_files) {
            return own.after;
        }
        own.after.into_iter().for_each(|step| push(steps, step));
        Vec::new()
    }

    /// Returns the way to a sink through these transforms. Those that make files have a branch of their own:
    /// files are no messages for a producer of traces.
    fn packed(&mut self, name: &str, plugin: &Plugin, packing: Vec<Step>, sink: End) -> End {
        if packing.is_empty() {
            return sink;
        }
        let branch = self.draft.branch(format!("{name}-objects"), 0, plugin.span);
        if let Some(branch) = self.draft.at(branch) {
            branch.steps = packing;
        }
        self.leads(branch, sink);
        End::Branch(branch)
    }

    pub(super) fn failover(
        &mut self,
        plugin: &Plugin,
        first: End,
        second: End,
        timeout: i64,
        name: &str,
    ) -> End {
        let branch = self.draft.branch(format!("{}-or-{name}", plugin.id), 0, plugin.span);
        if let Some(branch) = self.draft.at(branch) {
            branch.way = Way::Failover((timeout != 0).then(|| timeout.max(0)));
            branch.to = vec![first, second];
        }
        End::Branch(branch)
    }

    pub(super) fn is_on_several(&self, plugin: &Plugin) -> bool {
        let streams = plugin.streams();
        streams.len() > 1 || streams.iter().any(|(name, _)| name == ALL)
    }

    pub(super) fn sink(&mut self, producer: usize, stream: &str, several: bool) -> usize {
        let plugin = &self.plugins.producers[producer];
        let by_stream = producers::depends_on_stream(&plugin.settings).then(|| stream.to_owned());
        let key = (producer, by_stream.as_deref().map(|stream| producers::target(&plugin.settings, stream)));
        if let Some(sink) = self.sinks.get(&key) {
            return *sink;
        }
        let node = producers::sink(&plugin.settings, by_stream.as_deref(), self.version, self.report);
        let name = match &by_stream {
            Some(stream) if several => format!("{}-{}", plugin.id, shown(stream)),
            _ => plugin.id.clone(),
        };
        let sink = self.draft.sink(name, plugin.span, node);
        self.sinks.insert(key, sink);
        sink
    }

    /// Adds a spool: a sink for messages of a stream, and a source that returns them to that stream.
    pub(super) fn spool(&mut self, plugin: &Plugin, origin: Option<&str>) -> Option<End> {
        let Some(origin) = origin else {
            // gollum returned these messages to their stream, which is the spool's own.
            let message = format!(
                "These messages came from no other stream, so they stay in the spool `{}`.",
                plugin.id
            );
            self.report.remark(plugin.span, message);
            let (sink, _) = producers::spool(&plugin.settings, "unnamed", self.report);
            let sink = self.draft.sink(plugin.id.clone(), plugin.span, sink);
            return Some(End::Sink(sink));
        };
        let (sink, source) = producers::spool(&plugin.settings, &valid_name(origin), self.report);
        let sink = self.draft.sink(format!("{}-{origin}", plugin.id), plugin.span, sink);
        let source = self.draft.source(format!("{}-back-to-{origin}", plugin.id), plugin.span, source);
        self.draft.sources[source].notes.push(format!("Spooled messages return to the stream `{origin}`."));
        if let Some(branch) = self.stream(origin, None, plugin.span) {
            self.feed(branch, Feed::Source(source));
        }
        Some(End::Sink(sink))
    }
}

/// Returns the name of a stream for the names of sinks and pipelines.
fn shown(stream: &str) -> &str {
    if producers::field_of(stream).is_some() { "other-streams" } else { stream }
}

/// True if a list contains the name of a message's previous stream.
pub(super) fn names_previous(node: &Node) -> bool {
    node.items().iter().any(names_previous)
        || node.entries().iter().any(|(key, value)| {
            ["UsePrevious", "StreamNameHistory"].iter().any(|name| key.name.eq_ignore_ascii_case(name))
                || names_previous(value)
        })
}

/// True if the effect of modulators depends on the stream.
fn names_stream(list: &[Node]) -> bool {
    list.iter().any(|node| {
        let (name, inner) = match (node.as_str(), node.entries()) {
            (Some(name), _) => (name, None),
            (None, [(key, inner), ..]) => (key.name.as_str(), Some(inner)),
            _ => return false,
        };
        let nested = inner.is_some_and(|inner| {
            inner.entries().iter().any(|(_, value)| {
                names_stream(value.items()) || value.as_str().is_some_and(|name| by_stream(name, None))
            })
        });
        by_stream(name, inner) || nested
    })
}

/// True if a filter or formatter depends on the stream. `Rate` counts for each stream, `Sample` for all
/// together.
fn by_stream(name: &str, settings: Option<&Node>) -> bool {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let samples_some = settings.is_some_and(|settings| get(settings, "SampleIgnore").is_some());
    is("format.StreamName")
        || is("format.Serialize")
        || is("filter.Stream")
        || is("filter.Rate")
        || is("filter.Sample") && samples_some
}
