//! The table of filters.

use super::Takes::{List, Number, Plugins, Text};
use super::{OptionRule, PluginKind, Role, used};

const COMMON: &[OptionRule] = &[used(
    "FilteredStream",
    Text,
    "what does not pass leaves by a named output, to the pipeline of that stream",
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
            "one condition; `filter.Rate` and `filter.Sample` cannot be among them",
        )],
    ),
    filter("filter.None", "transform `filter: \"false\"`, or `route` for all", &[]),
    filter(
        "filter.Rate",
        "transform `limit` with `on_excess: drop` or `route`",
        &[
            used("MessagesPerSec", Number, "`rate`"),
            used("Ignore", List, "pipelines of these streams do not have it"),
        ],
    ),
    filter(
        "filter.RegExp",
        "transform `filter` or `route` with `regexp_like`",
        &[
            used("Expression", Text, "what must match"),
            used("ExpressionNot", Text, "what must not match"),
            used("Target", Text, "the field that is looked at"),
            used("ApplyTo", Text, "the same, as gollum's own examples have it"),
        ],
    ),
    filter(
        "filter.Sample",
        "transform `sample`",
        &[
            used("SampleRatePerGroup", Number, "`take`"),
            used("SampleGroupSize", Number, "`one_in`"),
            used("SampleIgnore", List, "pipelines of these streams do not have it"),
        ],
    ),
    filter(
        "filter.Stream",
        "nothing: which stream a message is in is known, so the pipelines that it would end are left out",
        &[
            used("Block", List, "messages of these streams do not pass"),
            used("Only", List, "messages of other streams do not pass"),
        ],
    ),
];
