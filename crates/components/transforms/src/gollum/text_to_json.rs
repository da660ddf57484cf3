//! Turns text into a JSON object by a state machine (`format.TextToJSON`, in v0.4 `format.JSON`).
//!
//! Each state has tokens. At a token, the text since the last one is handed to an action, and the machine
//! goes to another state. The longest token that begins at a byte counts.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::time_text::TimeText;
use thalweg_codec::timestamps::{TimeFormat, TimeParser};
use thalweg_config::List;

use super::go::write_text;

/// A message may make this many transitions in a row that read nothing. gollum loops for ever.
const STANDING: usize = 1024;

/// Turns text into a JSON object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TextToJson {
    /// The transitions.
    #[schemars(length(min = 1))]
    directives: Vec<Transition>,
    /// The first state. The default is that of the first transition.
    #[serde(default)]
    start: Option<String>,
    /// The format in which the action `dat` reads times, as for `parse_timestamp`. The default is
    /// `%Y%m%d%H%M%S`.
    #[serde(default = "compact")]
    read_time: String,
    /// The format in which the action `dat` writes times, as for `format_timestamp`. The default is `%Y-%m-%d
    /// %H:%M:%S %Z`.
    #[serde(default = "readable")]
    write_time: String,
}

fn compact() -> String {
    "%Y%m%d%H%M%S".to_owned()
}

fn readable() -> String {
    "%Y-%m-%d %H:%M:%S %Z".to_owned()
}

/// A transition from one state to another.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Transition {
    /// The state in which the token is looked for.
    state: String,
    /// The text that triggers the transition.
    token: String,
    /// The next state. Without it, reading stops.
    #[serde(default)]
    next: Option<String>,
    /// True to read the token again in the next state.
    #[serde(default, rename = "continue")]
    reread: bool,
    /// True to keep the text for the next transition.
    #[serde(default)]
    append: bool,
    /// True to add the token to the text.
    #[serde(default)]
    include: bool,
    /// True to put the state on the stack.
    #[serde(default)]
    push: bool,
    /// True to go to the state on top of the stack, and to take it off, if there is one.
    #[serde(default)]
    pop: bool,
    /// The actions with the text that was read.
    #[serde(default)]
    actions: List<Action>,
}

/// The use of the text before a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Writes it as a member's name.
    Key,
    /// Writes it as a value, as it is.
    Val,
    /// Writes it as a text.
    Esc,
    /// Writes it as a time.
    Dat,
    /// Begins an array.
    Arr,
    /// Begins an object.
    Obj,
    /// Ends an array or object.
    End,
}

/// A transition that is ready to run.
#[derive(Debug)]
struct Rule {
    token: Vec<u8>,
    next: Option<usize>,
    reread: bool,
    append: bool,
    include: bool,
    push: bool,
    pop: bool,
    actions: Vec<Action>,
}

#[derive(Debug)]
struct State {
    name: String,
    /// The longest token first, and the last of those that are equal.
    rules: Vec<Rule>,
    /// True for each byte with which a token begins.
    first: [bool; 256],
}

/// The part that was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The start of an object.
    Object,
    /// A member, or the end of something.
    Member,
    /// A member's name.
    Key,
    /// The start of an array.
    Array,
    /// An element of an array.
    Element,
}

/// Parses one text after the other.
#[derive(Debug)]
pub(super) struct Machine {
    states: Vec<State>,
    start: usize,
    /// The states that were pushed.
    pushed: Vec<usize>,
    times: TimeParser,
    written: TimeText,
}

/// The object that is being written.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    last: Last,
    open: Vec<Last>,
    times: &'a mut TimeParser,
    written: &'a mut TimeText,
}

impl TextToJson {
    /// Prepares the states.
    ///
    /// # Errors
    /// A start that is no state, or a wrong format of a time.
    pub(super) fn build(&self) -> Result<Machine, String> {
        let mut names: HashMap<&str, usize> = HashMap::new();
        let mut states: Vec<State> = Vec::new();
        let named = self.directives.iter().map(|rule| rule.state.as_str());
        for name in named.chain(self.directives.iter().filter_map(|rule| rule.next.as_deref())) {
            names.entry(name).or_insert_with(|| {
                states.push(State { name: name.to_owned(), rules: Vec::new(), first: [false; 256] });
                states.len() - 1
            });
        }
        for rule in &self.directives {
            let next = rule.next.as_deref().and_then(|name| names.get(name).copied());
            if let Some(state) = names.get(rule.state.as_str()).and_then(|&state| states.get_mut(state)) {
                state.add(rule, next);
            }
        }
        let first = self.directives.first().map(|rule| rule.state.as_str()).unwrap_or_default();
        let start = self.start.as_deref().unwrap_or(first);
        let start = *names.get(start).ok_or_else(|| format!("`{start}` is not a state of any directive"))?;
        let written = TimeText::new(&self.write_time)
            .ok_or_else(|| format!("`{}` is not a format for times", self.write_time))?;
        let times = TimeParser::new(TimeFormat::parse(&self.read_time)?, 0);
        Ok(Machine { states, start, pushed: Vec::new(), times, written })
    }
}

impl State {
    fn add(&mut self, rule: &Transition, next: Option<usize>) {
        // An empty token is never found, and a token replaces an equal one.
        let token = rule.token.clone().into_bytes();
        let Some(&first) = token.first() else { return };
        self.first[usize::from(first)] = true;
        self.rules.retain(|other| other.token != token);
        let at = self.rules.partition_point(|other| other.token.len() > token.len());
        let Transition { reread, append, include, push, pop, .. } = *rule;
        let actions = rule.actions.to_vec();
        self.rules.insert(at, Rule { token, next, reread, append, include, push, pop, actions });
    }

    /// Returns the next token from a position on, and the position.
    fn find(&self, text: &[u8], from: usize) -> Option<(usize, &Rule)> {
        let rest = text.get(from..)?;
        let starts = rest.iter().enumerate().filter(|(_, byte)| self.first[usize::from(**byte)]);
        starts.map(|(at, _)| at).find_map(|at| {
            let rest = rest.get(at..)?;
            self.rules.iter().find(|rule| rest.starts_with(&rule.token)).map(|rule| (from + at, rule))
        })
    }
}

impl Machine {
    /// Appends the object that a text becomes.
    ///
    /// # Errors
    /// The directives lead in a circle without reading on.
    pub(super) fn write(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let Self { states, start, pushed, times, written } = self;
        pushed.clear();
        out.push(b'{');
        let begin = out.len();
        let mut writer = Writer { out, last: Last::Object, open: Vec::new(), times, written };
        let (mut state, mut at, mut read) = (Some(*start), 0, 0);
        let mut standing = 0;
        let mut name = "";
        while let Some(current) = state.and_then(|state| states.get(state)) {
            name = &current.name;
            let Some((found, rule)) = current.find(text, at) else { break };
            let end = if rule.include { found + rule.token.len() } else { found };
            let value = text.get(read..end).unwrap_or_default();
            writer.act(&rule.actions, value, name);
            let next = if rule.reread { found } else { found + rule.token.len() };
            standing = if next > at { 0 } else { standing + 1 };
            if standing > STANDING {
                return Err(format!(
                    "the directives go round in a circle at byte {found}, in the state `{name}`"
                ));
            }
            at = next;
            if !rule.append {
                read = at;
            }
            let popped = if rule.pop { pushed.pop() } else { None };
            if rule.push
                && let Some(state) = state
            {
                pushed.push(state);
            }
            state = popped.or(rule.next);
            if state.is_none() {
                name = "";
            }
        }
        if let Some(rest) = text.get(read..).filter(|rest| !rest.is_empty()) {
            writer.value(Action::Esc, rest, name);
        }
        if writer.out.len() > begin {
            while matches!(writer.last, Last::Array | Last::Element | Last::Object) {
                writer.end();
            }
        }
        out.push(b'}');
        Ok(())
    }
}

impl Writer<'_> {
    fn act(&mut self, actions: &[Action], text: &[u8], state: &str) {
        let ends = actions.len() > 1 && actions.last() == Some(&Action::End);
        for action in actions {
            let before = self.last;
            match action {
                Action::Key => {
                    self.key(text);
                    self.last = Last::Key;
                }
                Action::Arr => self.begin(b'[', Last::Array, state),
                Action::Obj => self.begin(b'{', Last::Object, state),
                Action::End => self.end(),
                value => {
                    self.value(*value, text, state);
                    // A value that ends something leaves the bracket to what was open before it.
                    if ends {
                        self.last = before;
                    }
                }
            }
        }
    }

    fn key(&mut self, name: &[u8]) {
        while matches!(self.last, Last::Array | Last::Element) {
            self.end();
        }
        if self.last == Last::Key {
            self.out.extend_from_slice(b"null");
        }
        if self.last != Last::Object {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b"\":");
    }

    fn value(&mut self, action: Action, text: &[u8], state: &str) {
        let lossy = String::from_utf8_lossy(text);
        let trimmed = lossy.trim();
        let time;
        let trimmed = if action == Action::Dat {
            time = self.time(trimmed);
            time.trim()
        } else {
            trimmed
        };
        if trimmed.is_empty() {
            if !matches!(self.last, Last::Array | Last::Element) {
                self.last = Last::Member;
            }
            return;
        }
        match self.last {
            Last::Array => {}
            Last::Element => self.out.push(b','),
            Last::Key => {}
            _ => self.key(state.as_bytes()),
        }
        match action {
            Action::Val => self.out.extend_from_slice(text.trim_ascii()),
            _ => write_text(trimmed, self.out),
        }
        self.last =
            if matches!(self.last, Last::Array | Last::Element) { Last::Element } else { Last::Member };
    }

    /// Returns a time in the other format. As in gollum, a text that is no time becomes the year 1.
    fn time(&mut self, text: &str) -> String {
        let zero = NaiveDate::from_ymd_opt(1, 1, 1).map(|day| day.and_time(chrono::NaiveTime::MIN).and_utc());
        let time = self.times.parse(text).and_then(DateTime::from_timestamp_micros).or(zero);
        time.map_or_else(String::new, |time| self.written.of(time).to_owned())
    }

    fn begin(&mut self, bracket: u8, inside: Last, state: &str) {
        match self.last {
            Last::Key | Last::Array | Last::Object => {}
            Last::Element => self.out.push(b','),
            Last::Member => self.key(state.as_bytes()),
        }
        self.out.push(bracket);
        self.open.push(self.last);
        self.last = inside;
    }

    fn end(&mut self) {
        if !self.open.is_empty() {
            self.out.push(if matches!(self.last, Last::Array | Last::Element) { b']' } else { b'}' });
        }
        // The outermost bracket leaves a member, whatever was open before it.
        let outer = self.open.pop().filter(|_| !self.open.is_empty());
        self.last = match outer {
            Some(Last::Array) => Last::Element,
            Some(outer) => outer,
            None => Last::Member,
        };
    }
}
