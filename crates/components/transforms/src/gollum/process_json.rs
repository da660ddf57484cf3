//! Changes the members of a JSON object by directives (`format.ProcessJSON`).

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use chrono::DateTime;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::time_text::TimeText;
use thalweg_codec::timestamps::{TimeFormat, TimeParser};
use thalweg_config::List;
use thalweg_engine::Context;

use super::go::write_text;
use super::places::Places;
use super::raw::{Members, Raw, element, inner, object, retained};
use crate::parse_user_agent::{Fact, facts_of};

/// Changes the members of a JSON object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessJson {
    /// The changes, one after the other. A change of a member that the object does not have does nothing.
    directives: Vec<Directive>,
    /// True (the default) to remove the spaces at both ends of all texts.
    #[serde(default = "yes")]
    trim_values: bool,
    /// The path of the database for `geoip`, a file that ends in `.mmdb`. Without it, `geoip` does nothing.
    #[serde(default)]
    geoip_database: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

/// A change of one member.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Directive {
    /// The member's name.
    member: String,
    /// The change.
    action: Action,
    /// The parameters of the change. Formats of times are those of `parse_timestamp`.
    #[serde(default)]
    parameters: List<String>,
    /// For `time`: the number of bytes at the start of the text that are the time. The default is all.
    #[serde(default)]
    length: Option<usize>,
}

/// The effect of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Gives the member another name: `[name]`.
    Rename,
    /// Removes the member, or the listed texts from its array.
    Remove,
    /// Converts a time: `[from, to]`.
    Time,
    /// Converts a number of seconds (`s`), milliseconds (`ms`) or nanoseconds (`ns`) since 1970: `[unit,
    /// to]`.
    Unixtimestamp,
    /// Splits a text into members: `[separator, name, ...]`.
    Split,
    /// Copies an element of an array: `[index, name]`.
    Pick,
    /// Replaces a text: `[search, replacement]`.
    Replace,
    /// Removes characters from both ends: `[characters]`, by default spaces and tabs.
    Trim,
    /// Makes members of the members or elements of a member: `[separator]`, by default a dot.
    Flatten,
    /// Adds what a user agent says: `[fact, ...]`, by default all.
    Agent,
    /// Removes the texts of an array that are not IP addresses.
    Ip,
    /// Adds the location of an IP address: `[fact, ...]`, by default all.
    Geoip,
}

/// The facts about a user agent, by gollum's names.
pub(super) const AGENT: [(&str, Fact); 8] = [
    ("mozilla", Fact::Mozilla),
    ("platform", Fact::Platform),
    ("os", Fact::Os),
    ("localization", Fact::Localization),
    ("engine", Fact::Engine),
    ("engine_version", Fact::EngineVersion),
    ("browser", Fact::Browser),
    ("version", Fact::Version),
];

/// A directive that is ready to run.
struct Step {
    member: String,
    change: Change,
}

enum Change {
    Rename(String),
    Remove,
    RemoveTexts(Vec<String>),
    Time(Box<TimeParser>, Box<TimeText>, Option<usize>),
    Unix(Unit, Box<TimeText>),
    Split(String, Vec<String>),
    Pick(Option<usize>, String),
    Replace(String, String),
    Trim(Vec<char>),
    Flatten(String),
    Agent(Vec<(&'static str, Fact)>),
    Ip,
    Geoip(Places),
    Nothing,
}

#[derive(Debug, Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
    Nanoseconds,
}

/// Applies the directives to one object after the other.
pub(super) struct Processor {
    steps: Vec<Step>,
    trims: bool,
}

impl ProcessJson {
    /// Prepares the directives. Without a context, it only checks them.
    ///
    /// # Errors
    /// A directive whose parameters are wrong, or a database that cannot be read.
    pub(super) fn build(&self, context: Option<&Context>) -> Result<Processor, String> {
        let database = self.geoip_database.as_deref();
        let step = |directive: &Directive| {
            let change = match (directive.action, database, context) {
                (Action::Geoip, Some(database), Some(context)) => {
                    Change::Geoip(Places::open(database, &directive.parameters, context)?)
                }
                (Action::Geoip, _, _) => Change::Nothing,
                _ => directive.change()?,
            };
            Ok(Step { member: directive.member.clone(), change })
        };
        let steps = self.directives.iter().map(step).collect::<Result<_, String>>()?;
        Ok(Processor { steps, trims: self.trim_values })
    }
}

impl Directive {
    fn change(&self) -> Result<Change, String> {
        let written = |format: &String| {
            TimeText::new(format).map(Box::new).ok_or_else(|| format!("`{format}` is not a format for times"))
        };
        let change = match (self.action, &*self.parameters) {
            (Action::Rename, [name]) => Change::Rename(name.clone()),
            (Action::Remove, []) => Change::Remove,
            (Action::Remove, texts) => Change::RemoveTexts(texts.to_vec()),
            (Action::Time, [from, to]) => {
                let parser = TimeParser::new(TimeFormat::parse(from)?, 0);
                Change::Time(Box::new(parser), written(to)?, self.length)
            }
            (Action::Unixtimestamp, [unit, to]) => {
                let unit = match unit.as_str() {
                    "s" => Unit::Seconds,
                    "ms" => Unit::Milliseconds,
                    "ns" => Unit::Nanoseconds,
                    other => return Err(format!("`{other}` is none of the units `s`, `ms` and `ns`")),
                };
                Change::Unix(unit, written(to)?)
            }
            (Action::Split, [separator, names @ ..]) if !names.is_empty() => {
                Change::Split(separator.clone(), names.to_vec())
            }
            // gollum takes an index that is not a number for 0. A negative index is never in the array.
            (Action::Pick, [index, name]) => {
                Change::Pick(usize::try_from(index.parse().unwrap_or(0_i64)).ok(), name.clone())
            }
            (Action::Replace, [search, with]) => Change::Replace(search.clone(), with.clone()),
            (Action::Trim, []) => Change::Trim(vec![' ', '\t']),
            (Action::Trim, [characters]) => Change::Trim(characters.chars().collect()),
            (Action::Flatten, []) => Change::Flatten(".".to_owned()),
            (Action::Flatten, [separator]) => Change::Flatten(separator.clone()),
            (Action::Agent, []) => Change::Agent(AGENT.to_vec()),
            (Action::Agent, names) => {
                let known = |name: &String| AGENT.into_iter().find(|(known, _)| known == name);
                Change::Agent(names.iter().filter_map(known).collect())
            }
            (Action::Ip, []) => Change::Ip,
            (action, parameters) => {
                return Err(format!(
                    "`{action:?}` of `{}` does not take {} parameters",
                    self.member,
                    parameters.len()
                ));
            }
        };
        Ok(change)
    }
}

impl Processor {
    /// Appends the changed object.
    ///
    /// # Errors
    /// The reason why the value is not a JSON object.
    pub(super) fn write(&mut self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut members = object(value)?;
        for step in &mut self.steps {
            step.change(&mut members);
        }
        out.push(b'{');
        for (index, (name, value)) in members.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_text(name, out);
            out.push(b':');
            match value {
                Raw::Text(text) if self.trims => write_text(text.trim_matches(' '), out),
                value => value.write(out),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

impl Step {
    fn change<'a>(&'a mut self, members: &mut Members<'a>) {
        let Some(value) = members.get_mut(&*self.member) else { return };
        let added = match &mut self.change {
            Change::Rename(name) => {
                if let Some(value) = members.remove(&*self.member) {
                    members.insert(Cow::Borrowed(name), value);
                }
                return;
            }
            Change::Remove => {
                members.remove(&*self.member);
                return;
            }
            Change::Flatten(separator) => {
                let Some(inner) = inner(value) else { return };
                members.remove(&*self.member);
                let name = |key: &str| Cow::Owned(format!("{}{separator}{key}", self.member));
                members.extend(inner.into_iter().map(|(key, value)| (name(&key), value)));
                return;
            }
            Change::Split(separator, names) => split(value, separator, names),
            Change::Pick(index, name) => {
                let picked = value.as_array().zip(*index).and_then(|(array, index)| element(array, index));
                picked.map(|picked| vec![(Cow::Borrowed(&**name), picked)]).unwrap_or_default()
            }
            Change::Agent(facts) => agent(value, &self.member, facts),
            Change::Geoip(places) => match value.as_text().map(str::parse) {
                Some(Ok(address)) => {
                    let found = places.of(&self.member, address).into_iter();
                    found.map(|(name, value)| (Cow::Owned(name), value.into())).collect()
                }
                _ => return,
            },
            change => {
                change.in_place(value);
                return;
            }
        };
        members.extend(added);
    }
}

impl Change {
    /// Changes a value that stays under its name.
    fn in_place(&mut self, value: &mut Raw<'_>) {
        let changed = match (self, &*value) {
            (Self::RemoveTexts(texts), value) => Some(match value.as_array() {
                Some(array) => retained(array, |item| {
                    !item.as_text().is_some_and(|item| texts.iter().any(|text| text == item))
                }),
                // gollum writes the empty result for a member that is no array.
                None => Raw::Json(Cow::Borrowed("null")),
            }),
            (Self::Ip, value) => value.as_array().map(|array| {
                retained(array, |item| item.as_text().is_none_or(|text| text.parse::<IpAddr>().is_ok()))
            }),
            (Self::Time(parser, written, length), Raw::Text(text)) => {
                let time = text.get(..length.unwrap_or(text.len())).and_then(|text| parser.parse(text));
                let time = time.and_then(DateTime::from_timestamp_micros);
                time.map(|time| Raw::Text(written.of(time).to_owned().into()))
            }
            (Self::Unix(unit, written), value) => {
                // As in Go, the fraction is cut off.
                let time = value.as_number().map(|number| number as i64).and_then(|number| match unit {
                    Unit::Seconds => DateTime::from_timestamp(number, 0),
                    Unit::Milliseconds => DateTime::from_timestamp_millis(number),
                    Unit::Nanoseconds => Some(DateTime::from_timestamp_nanos(number)),
                });
                time.map(|time| Raw::Text(written.of(time).to_owned().into()))
            }
            (Self::Replace(search, with), Raw::Text(text)) => {
                Some(Raw::Text(text.replace(search.as_str(), with).into()))
            }
            (Self::Trim(characters), Raw::Text(text)) => {
                Some(Raw::Text(text.trim_matches(&**characters).to_owned().into()))
            }
            _ => None,
        };
        if let Some(changed) = changed {
            *value = changed;
        }
    }
}

fn split<'a>(value: &Raw<'a>, separator: &'a str, names: &'a [String]) -> Vec<(Cow<'a, str>, Raw<'a>)> {
    let Raw::Text(text) = value else { return Vec::new() };
    if !text.contains(separator) {
        return Vec::new();
    }
    let names = names.iter().map(|name| Cow::Borrowed(name.as_str()));
    match text {
        Cow::Borrowed(text) => names.zip(parts(text, separator).map(|part| Raw::Text(part.into()))).collect(),
        Cow::Owned(text) => {
            names.zip(parts(text, separator).map(|part| Raw::Text(part.to_owned().into()))).collect()
        }
    }
}

/// Returns the parts of a text. Go splits at an empty separator after each character.
fn parts<'a>(text: &'a str, separator: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(separator).filter(move |part| !separator.is_empty() || !part.is_empty())
}

fn agent<'a>(value: &Raw<'_>, member: &str, facts: &[(&'static str, Fact)]) -> Vec<(Cow<'a, str>, Raw<'a>)> {
    let Some(text) = value.as_text() else { return Vec::new() };
    let wanted: Vec<Fact> = facts.iter().map(|(_, fact)| *fact).collect();
    let found = facts_of(text, &wanted).into_iter().map(|fact| Raw::Text(fact.unwrap_or_default().into()));
    facts.iter().map(|(name, _)| Cow::Owned(format!("{member}_{name}"))).zip(found).collect()
}
