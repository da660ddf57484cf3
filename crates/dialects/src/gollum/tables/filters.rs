//! The table of filters.

use super::Takes::{List, Map, Number, Plugins, Text};
use super::{OptionRule, PluginKind, Role, idle, used};

const COMMON: &[OptionRule] = &[used(
    "FilteredStream",
    Text,
    "messages that do not pass leave by a named output, to the pipeline of that stream",
)];

const fn filter(name: &'static str, becomes: &'static str, options: &'static [OptionRule]) -> PluginKind {
    PluginKind { name, role: Role::Filter, becomes, options, shared: &[COMMON], refused: None }
}

pub(super) const KINDS: &[PluginKind] = &[
    filter(
        "filter.Any",
        "transform `filter` or `route` with `OR`",
        &[used(
            "AnyFilters",
            Plugins,
            "combined into one condition; `filter.Rate` and `filter.Sample` are not allowed",
        )],
    ),
    filter(
        "filter.JSON",
        "transform `filter` or `route` with `regexp_like(json_get(...))` (v0.4 and v0.5)",
        &[
            used("Reject", Map, "members and the patterns that must not match them"),
            used("Accept", Map, "members and the patterns that must match them, where they exist"),
            used("ApplyTo", Text, "the field that holds the JSON"),
        ],
    ),
    filter("filter.None", "transform `filter: \"false\"`, or a `route` that matches all", &[]),
    filter(
        "filter.Rate",
        "transform `limit` with `on_excess: drop` or `route`",
        &[
            used("MessagesPerSec", Number, "`rate`"),
            used("Ignore", List, "pipelines of these streams are not limited"),
        ],
    ),
    filter(
        "filter.RegExp",
        "transform `filter` or `route` with `regexp_like`",
        &[
            used("Expression", Text, "the pattern that must match"),
            used("ExpressionNot", Text, "the pattern that must not match"),
            used("Target", Text, "the field that is tested"),
            used("ApplyTo", Text, "the same; gollum's own examples use this name"),
        ],
    ),
    filter(
        "filter.Sample",
        "transform `sample`",
        &[
            used("SampleRatePerGroup", Number, "`take`"),
            used("SampleGroupSize", Number, "`one_in`"),
            used("SampleIgnore", List, "pipelines of these streams are not sampled"),
            idle("SampleRateIgnore", List, "gollum's documentation uses this name, its code `SampleIgnore`"),
        ],
    ),
    filter(
        "filter.Stream",
        "nothing: the stream of each message is known beforehand, so pipelines that it would end are left out",
        &[
            used("Block", List, "messages of these streams do not pass"),
            used("Only", List, "messages of other streams do not pass"),
        ],
    ),
];
