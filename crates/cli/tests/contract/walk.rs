//! Every registered component has its suite.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_config::Document;
use thalweg_engine::{Built, Flow, Role, SourceConfig};
use thalweg_testkit::cases::{feeds, files, messages, outlets};

/// The components that have no suite, and why.
const EXEMPT: &[(Role, &str, &str)] = &[
    (
        Role::Source,
        "internal_logs",
        "makes records of its own, which have no number; its unit tests count them",
    ),
    (
        Role::Source,
        "prometheus_scrape",
        "reads the values of its time, of which none is promised to arrive; its unit tests compare them",
    ),
    (
        Role::Source,
        "websocket_client",
        "reads what a server says once, of which none is promised to arrive; its unit tests compare it",
    ),
];

fn sources() -> BTreeSet<&'static str> {
    let all = [feeds::all(), feeds::of_web(), feeds::of_brokers(), feeds::datagrams()];
    all.iter().flatten().map(|feed| feed.component).chain(["proxy"]).collect()
}

fn sinks() -> BTreeSet<&'static str> {
    let all = outlets::all().into_iter().chain(outlets::unreadable()).chain(outlets::of_files());
    let all = all.chain(outlets::of_brokers()).chain(outlets::of_systems());
    all.map(|outlet| outlet.component).chain(["proxy"]).collect()
}

fn message_transforms() -> BTreeSet<&'static str> {
    messages::ALL
        .iter()
        .map(|case| case.component)
        .chain(messages::EXEMPT.iter().map(|(name, _)| *name))
        .collect()
}

/// File transforms, and the file readers that the sources of files are tested with.
fn file_transforms() -> BTreeSet<&'static str> {
    let transforms = files::all().into_iter().chain(files::of_pictures()).map(|outlet| outlet.component);
    let readers = feeds::file_readers().into_iter().flat_map(|feed| feed.steps);
    transforms.chain(readers.filter_map(|step| step.split(':').next())).collect()
}

#[test]
fn every_component_has_its_suite() {
    let registry = thalweg_components::registry();
    let without = registry.iter().filter(|known| {
        let cases = match (known.role, known.takes) {
            (Role::Source, _) => sources(),
            (Role::Sink, _) => sinks(),
            (Role::Transform, Some(Flow::Files)) => file_transforms(),
            (Role::Transform, _) => message_transforms(),
        };
        let is_exempt = EXEMPT.iter().any(|(role, name, _)| *role == known.role && *name == known.name);
        !cases.contains(known.name) && !is_exempt
    });
    let without: Vec<String> = without.map(|known| format!("{} {}", known.role.name(), known.name)).collect();
    assert!(
        without.is_empty(),
        "a component without its suite: add a case to `thalweg_testkit::cases` for {without:?}"
    );
}

/// The components that have a maximum size of a message but no character set, and why.
const WITHOUT_CHARSET: &[(&str, &str)] = &[
    ("aws_kinesis_streams", "the records of a stream are not cut"),
    ("aws_sqs", "the messages of a queue are not cut"),
    ("journald", "the journal's export format is UTF-8"),
    ("amqp", "the messages of a server are not cut"),
    ("kafka", "the messages of a broker are not cut"),
    ("mqtt", "the messages of a server are not cut"),
    ("nats", "the messages of a server are not cut"),
    ("proxy", "passes bytes on as they are"),
    ("redis", "the messages of a server are not cut"),
    ("sse", "events are UTF-8"),
    ("websocket_client", "the messages of a server are not cut"),
];

#[test]
fn every_component_that_cuts_text_has_a_character_set() {
    let registry = thalweg_components::registry();
    for known in registry.iter().filter(|known| known.role != Role::Sink) {
        let options = known.reference().options;
        let has = |name: &str| options.iter().any(|option| option.name == name);
        let is_exempt = WITHOUT_CHARSET.iter().any(|(name, _)| *name == known.name);
        assert_eq!(has("charset"), has("max_message_bytes") && !is_exempt, "{}", known.name);
    }
}

#[test]
fn every_case_is_of_a_registered_component() {
    let registry = thalweg_components::registry();
    let is_known = |role, name: &&str| registry.get(role, name).is_some();
    assert!(sources().iter().all(|name| is_known(Role::Source, name)), "{:?}", sources());
    assert!(sinks().iter().all(|name| is_known(Role::Sink, name)), "{:?}", sinks());
    let transforms: BTreeSet<&str> = message_transforms().union(&file_transforms()).copied().collect();
    assert!(transforms.iter().all(|name| is_known(Role::Transform, name)), "{transforms:?}");
}

/// For each source: whether messages that no checkpoint covers come again, and whether a run without a state
/// gets all messages from the beginning. If not, sinks append.
const SOURCES: &[(&str, &str, bool, bool)] = &[
    ("aws_kinesis_streams", "{ stream: x }", true, true),
    ("aws_kinesis_streams", "{ stream: x, start: latest }", true, false),
    ("aws_sqs", "{ queue: x }", true, false),
    ("amqp", "{ servers: x, queues: x }", true, false),
    ("exec", "{ command: x }", false, true),
    ("exec", "{ command: x, every: 1m }", false, false),
    ("exec", "{ command: x, restart: true }", false, false),
    ("file", "{ path: x }", true, true),
    ("files", "{ path: x }", true, true),
    ("generate", "{}", true, true),
    ("http", "{ address: ':1' }", true, false),
    ("http", "{ address: ':1', respond: received }", false, false),
    ("http_client", "{ url: x }", true, true),
    ("http_client", "{ url: x, every: 1m }", false, false),
    ("http_client", "{ url: x, every: 1m, cursor: { field: id, parameter: after } }", true, false),
    ("http_upload", "{ address: ':1' }", true, false),
    ("http_upload", "{ address: ':1', respond: received }", false, false),
    ("internal_logs", "{}", false, true),
    ("journald", "{}", true, true),
    ("kafka", "{ brokers: 'x:1', topics: x, group: x }", true, false),
    ("mqtt", "{ servers: x, topics: x, client_id: c }", true, false),
    ("mqtt", "{ servers: x, topics: x, qos: 0 }", false, false),
    ("nats", "{ servers: x, stream: S, consumer: c }", true, false),
    ("nats", "{ servers: x, subjects: x }", false, false),
    ("objects", "{ url: x/ }", true, true),
    ("postgres", "{ server: x, table: x }", true, true),
    ("postgres", "{ server: x, query: SELECT 1 }", true, true),
    ("otlp", "{}", true, false),
    ("pipe", "{ path: x }", false, false),
    ("prometheus_scrape", "{ url: x }", false, true),
    ("prometheus_scrape", "{ url: x, every: 1m }", false, false),
    ("proxy", "{ address: 'tcp://:1' }", false, false),
    ("redis", "{ servers: x, stream: s, group: g }", true, false),
    ("redis", "{ servers: x, list: l }", true, false),
    ("redis", "{ servers: x, channels: c }", false, false),
    ("remote_files", "{ url: 'http://localhost/x' }", true, true),
    ("socket", "{ address: 'tcp://:1' }", false, false),
    ("socket", "{ address: 'tcp://:1', acknowledge: '+' }", true, false),
    ("socket", "{ address: 'tcp://:1', acknowledge: '+', respond: received }", false, false),
    ("socket", "{ address: 'udp://:1' }", false, false),
    ("spool", "{ path: x }", true, false),
    ("sse", "{ url: x }", false, false),
    ("sse", "{ url: x, replays: true }", true, false),
    ("stdin", "{}", false, true),
    ("syslog", "{ address: 'udp://:1' }", false, false),
    ("websocket_client", "{ url: x }", false, false),
];

/// The sources whose messages have no positions that grow, by which a sink could know them again. Others may
/// have them, as far as their options tell.
const WITHOUT_POSITIONS: &[&str] = &[
    "amqp",
    "exec",
    "generate",
    "http",
    "http_client",
    "internal_logs",
    "journald",
    "mqtt",
    "nats",
    "otlp",
    "pipe",
    "prometheus_scrape",
    "proxy",
    "redis",
    "socket",
    "sse",
    "stdin",
    "syslog",
    "websocket_client",
];

#[test]
fn every_source_says_whether_its_positions_grow() {
    for &(name, options, ..) in SOURCES {
        let is_without = WITHOUT_POSITIONS.contains(&name) || options.contains("query:");
        assert_eq!(source(name, options).has_growing_positions(), !is_without, "{name} {options}");
    }
}

fn source(name: &str, options: &str) -> Arc<dyn SourceConfig> {
    let registry = thalweg_components::registry();
    let known = registry.get(Role::Source, name).unwrap();
    let document = Document::parse("case.yaml", options).map_err(|mistakes| mistakes.render(false)).unwrap();
    let mut mistakes = document.diagnostics();
    match known.decode(document.root(), document.root().span, &mut mistakes) {
        Some(Built::Source(config)) => config,
        _ => panic!("{name}: {mistakes}"),
    }
}

#[test]
fn every_source_says_whether_its_messages_come_again() {
    for &(name, options, resends, starts_over) in SOURCES {
        let config = source(name, options);
        assert_eq!((config.resends(), config.starts_over()), (resends, starts_over), "{name} {options}");
    }
    let registry = thalweg_components::registry();
    let sources = registry.iter().filter(|known| known.role == Role::Source);
    let without: Vec<&str> = sources
        .map(|known| known.name)
        .filter(|name| SOURCES.iter().all(|source| source.0 != *name))
        .collect();
    assert!(without.is_empty(), "add to `SOURCES`: {without:?}");
}
