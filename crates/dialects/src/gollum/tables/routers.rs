//! The table of routers.

use super::Takes::{List, Number, Plugins, Text};
use super::{OptionRule, PluginKind, Role, used};

const COMMON: &[OptionRule] = &[
    used("Stream", Text, "the stream whose messages it forwards; the pipeline is named after the router"),
    used("Filters", Plugins, "transforms `filter` and `route`"),
    used("TimeoutMs", Number, "`failover: { timeout: … }` before each sink, as `ChannelTimeoutMs`"),
];

const fn router(name: &'static str, becomes: &'static str, options: &'static [OptionRule]) -> PluginKind {
    PluginKind { name, role: Role::Router, becomes, options, shared: &[COMMON], refused: None }
}

pub(super) const KINDS: &[PluginKind] = &[
    router("router.Broadcast", "a pipeline with `to: [a, b]`", &[]),
    router("router.RoundRobin", "a pipeline with `to: { round_robin: [a, b] }`", &[]),
    router("router.Random", "a pipeline with `to: { random: [a, b] }`", &[]),
    router(
        "router.Distribute",
        "a pipeline with `to:` the pipelines of other streams",
        &[used("TargetStreams", List, "the pipelines in `to`")],
    ),
    router(
        "router.Metadata",
        "transform `route_by`",
        &[used("Key", Text, "`field`; messages without it go to the router's own producers")],
    ),
];
