//! The option `on`: which fields of messages are compared with which columns of the table.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::ordered::Ordered;
use thalweg_config::{List, Mistake};

/// The fields of messages and the columns of the table that are compared.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum On {
    /// Fields that have the names of columns.
    Same(List<String, 1>),
    /// Fields, each with its column.
    Pairs(Ordered<Place>),
}

/// The columns that the value of a field is compared with.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Place {
    /// The column that has an equal value.
    Column(String),
    /// The network that the IP address is in.
    Network(InNetwork),
    /// The range that the number or time is in.
    Range(InRange),
}

/// A column of networks.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InNetwork {
    /// The column with networks, such as `10.0.0.0/8`, `2001:db8::/32`, or a single address. If several
    /// networks contain the address, the smallest one is found.
    #[serde(rename = "in")]
    network: String,
}

/// The columns of the two ends of a range.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InRange {
    /// The column with the first value of the range. NULL means that the range has no beginning.
    from: String,
    /// The column with the value after the range. NULL means that the range has no end.
    to: String,
}

/// The comparisons that find a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    /// Fields of messages, and the columns with equal values.
    pub(super) equal: Vec<(String, String)>,
    /// The field whose value is within what the columns say.
    pub(super) within: Option<(String, Within)>,
}

/// The columns that say what contains a value.
#[derive(Debug, Clone)]
pub(super) enum Within {
    /// A network.
    Network(String),
    /// From the one on, up to the other.
    Range(String, String),
}

impl On {
    /// Returns what is compared. Of several networks or ranges, the last.
    pub(super) fn keys(&self) -> Keys {
        let entries = match self {
            On::Same(names) => {
                let equal = names.iter().map(|name| (name.clone(), name.clone()));
                return Keys { equal: equal.collect(), within: None };
            }
            On::Pairs(entries) => &entries.0,
        };
        let mut keys = Keys::default();
        for (field, place) in entries {
            let field = field.clone();
            match place {
                Place::Column(column) => keys.equal.push((field, column.clone())),
                Place::Network(InNetwork { network }) => {
                    keys.within = Some((field, Within::Network(network.clone())));
                }
                Place::Range(InRange { from, to }) => {
                    keys.within = Some((field, Within::Range(from.clone(), to.clone())));
                }
            }
        }
        keys
    }

    /// Returns the mistakes that the schema cannot express.
    pub(super) fn mistakes(&self) -> Vec<Mistake> {
        let On::Pairs(entries) = self else { return Vec::new() };
        let mut mistakes = Vec::new();
        if entries.0.is_empty() {
            let mistake = Mistake::new("on", "`on` names no field.");
            mistakes.push(mistake.help("For example `on: customer`, or `on: { customer: id }`."));
        }
        if entries.0.iter().filter(|(_, place)| !matches!(place, Place::Column(_))).count() > 1 {
            let message = "Only one field can be compared with networks or ranges.";
            mistakes.push(Mistake::new("on", message).help("Use `join` twice, with a table for each."));
        }
        mistakes
    }
}

impl Keys {
    /// Returns the fields of messages that are compared.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let equal = self.equal.iter().map(|(field, _)| field.as_str());
        equal.chain(self.within.iter().map(|(field, _)| field.as_str()))
    }

    /// Returns the columns of the table that are compared.
    pub(super) fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = self.equal.iter().map(|(_, column)| column.as_str()).collect();
        match &self.within {
            Some((_, Within::Network(network))) => columns.push(network),
            Some((_, Within::Range(from, to))) => columns.extend([from.as_str(), to.as_str()]),
            None => {}
        }
        columns
    }
}
