//! The option `name`: the names of objects, of files by their properties and of messages by their values.
//!
//! Only the graph tells whether files or messages arrive, so the text must be a template of one of them.
//! (Rejected: an option for each. A user would have to know which one has an effect.)

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_codec::braces;
use thalweg_codec::part_name;
use thalweg_codec::safe_path::safe;
use thalweg_codec::template::{Template, explain};
use thalweg_config::{FormatError, register_format};
use thalweg_engine::{Error, Naming};
use thalweg_record::Batch;

use crate::file_template::FileTemplate;
use crate::padding;

const FORMAT: &str = "object-name";

/// The digits of a number that the template does not place.
const DIGITS: usize = 5;

/// The place of the number in a path. No path that messages decide has this character.
const NUMBER: char = '\0';

/// A template for the names of objects.
///
/// Of files, it inserts their properties, such as `{folder}` and `{name}`. Of messages, it inserts their
/// fields, and points in time as in `{time:%Y-%m-%d}`; `{number:5}` is the number of the object, with at
/// least five digits.
#[derive(Debug, Clone)]
pub struct ObjectName(String);

impl ObjectName {
    /// Returns the template for names of files.
    pub(super) fn of_files(&self) -> Result<FileTemplate, Error> {
        let wrong = |error: FormatError| Error::permanent(format!("`name` is for files here: {error}"));
        self.0.parse().map_err(wrong)
    }

    /// Returns the text of the template.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectName {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let of_messages = ObjectPaths::parse(String::new(), text);
        if text.parse::<FileTemplate>().is_err() {
            of_messages?;
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ObjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|error: FormatError| serde::de::Error::custom(error.message))
    }
}

impl JsonSchema for ObjectName {
    fn schema_name() -> Cow<'static, str> {
        "ObjectName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| text.parse::<ObjectName>().map(drop));
        json_schema!({ "type": "string", "format": FORMAT })
    }
}

/// The path of objects of messages: the same for all, or one for each value of its columns.
#[derive(Debug, Clone)]
pub(super) struct ObjectPaths {
    /// The folder in the store, as it is, or nothing.
    folder: String,
    before: Template,
    /// The digits of the number and the text after it, if the template places the number.
    number: Option<(usize, Template)>,
}

/// The messages of a batch with one path.
pub(super) struct Named {
    /// The path, with [`NUMBER`] at the place of the number.
    pub(super) path: String,
    pub(super) rows: Vec<u32>,
}

/// A piece of the text of a template.
enum Piece {
    Text(String),
    Number(usize),
}

impl ObjectPaths {
    /// Returns a path by a template without the place of a number.
    pub(super) fn of(folder: String, template: Template) -> Self {
        Self { folder, before: template, number: None }
    }

    /// Parses a template for the part of the path below `folder`.
    pub(super) fn parse(folder: String, text: &str) -> Result<Self, FormatError> {
        let literal = |text: String| Piece::Text(text.replace('{', "{{").replace('}', "}}"));
        let pieces = braces::parse(text, literal, piece)?;
        let (mut before, mut number) = (String::new(), None::<(usize, String)>);
        for piece in pieces {
            match (piece, &mut number) {
                (Piece::Text(text), None) => before.push_str(&text),
                (Piece::Text(text), Some((_, after))) => after.push_str(&text),
                (Piece::Number(digits), None) => number = Some((digits, String::new())),
                (Piece::Number(_), Some(_)) => {
                    return Err(FormatError::new("`{number}` is there twice.").help("Leave one of them out."));
                }
            }
        }
        let number = number.map(|(digits, after)| Ok((digits, after.parse()?))).transpose()?;
        Ok(Self { folder, before: before.parse()?, number })
    }

    /// Returns the path if it is the same for all messages at any time.
    pub(super) fn constant(&self) -> Option<String> {
        let (before, after) = match &self.number {
            None => (self.before.prefix(), String::new()),
            Some((_, after)) if after.is_constant() => {
                (self.before.prefix(), format!("{NUMBER}{}", after.prefix()))
            }
            Some(_) => return None,
        };
        self.before.is_constant().then(|| self.below(&format!("{before}{after}")))
    }

    /// Returns how objects of one path are numbered.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            digits: self.number.as_ref().map_or(DIGITS, |(digits, _)| *digits),
            is_of_many: self.constant().is_none(),
        }
    }

    /// Returns the folder that all objects are in, whatever the messages have: with a slash at its end, or
    /// nothing.
    pub(super) fn root(&self) -> String {
        let mut root = self.below(self.before.prefix());
        root.truncate(root.rfind('/').map_or(0, |slash| slash + 1));
        root
    }

    /// Returns the names of which an object could have this path. At most one of them is accepted.
    pub(super) fn names_of(&self, path: &str) -> Vec<String> {
        let Some((_, after)) = &self.number else {
            let (stem, extension) = part_name::split(path);
            let before = stem[..stem.len() - digits_at_end(stem)].strip_suffix('-');
            let numbered = before.map(|before| format!("{before}{extension}"));
            return numbered.into_iter().chain([path.to_owned()]).collect();
        };
        let (left, right) = (digits_at_end(self.before.suffix()), digits_at_start(after.prefix()));
        let name = |run: Range<usize>| {
            let (before, after) = (path.get(..run.start + left)?, path.get(run.end.checked_sub(right)?..)?);
            Some(format!("{before}{NUMBER}{after}"))
        };
        runs(path).filter_map(name).collect()
    }

    /// Groups the messages of a batch by their paths. Returns the other messages with the reasons why they
    /// have none.
    pub(super) fn group(&mut self, batch: &Batch) -> (Vec<Named>, Vec<(u32, String)>) {
        let fixed = self.before.prefix().to_owned();
        let (mut named, mut rejected) = (Vec::new(), Vec::new());
        for (rendered, rows) in self.render(batch) {
            match self.checked(&rendered, &fixed) {
                Ok(path) => named.push(Named { path, rows }),
                Err(reason) => rejected.extend(rows.into_iter().map(|row| (row, reason.clone()))),
            }
        }
        rejected.sort_unstable_by_key(|(row, _)| *row);
        explain(self.templates(), batch, &mut rejected);
        (named, rejected)
    }

    /// Returns the templates of the text before the number, and of that after it.
    fn templates(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.before).chain(self.number.as_ref().map(|(_, after)| after))
    }

    /// Returns the fields that messages must have for a path.
    pub(super) fn fields(&self) -> Vec<String> {
        self.templates().flat_map(Template::fields).collect()
    }

    /// Returns the rendered names of a batch, and the rows of each. A name is compared with the one before it
    /// first: adjacent messages often have the same.
    fn render(&mut self, batch: &Batch) -> Vec<(Vec<u8>, Vec<u32>)> {
        let mut groups: Vec<(Vec<u8>, Vec<u32>)> = Vec::new();
        let mut known = HashMap::<Vec<u8>, usize>::new();
        let mut before = self.before.bind(batch);
        let mut after = self.number.as_mut().map(|(_, after)| after.bind(batch));
        let (mut rendered, mut last) = (Vec::new(), usize::MAX);
        for row in 0..batch.rows() {
            rendered.clear();
            before.render(row, &mut rendered);
            if let Some(after) = &mut after {
                rendered.push(NUMBER as u8);
                after.render(row, &mut rendered);
            }
            if groups.get(last).is_none_or(|(name, _)| *name != rendered) {
                last = *known.entry(rendered.clone()).or_insert(groups.len());
                if last == groups.len() {
                    groups.push((rendered.clone(), Vec::new()));
                }
            }
            if let Some((_, rows)) = groups.get_mut(last) {
                rows.push(row as u32);
            }
        }
        groups
    }

    /// Returns the path for a rendered name, or the reason why no object can have it.
    fn checked(&self, rendered: &[u8], fixed: &str) -> Result<String, String> {
        // Only the number's place has the character, or the name is refused.
        let mut places = rendered.iter().enumerate().filter(|(_, byte)| **byte == NUMBER as u8);
        let place = match (&self.number, places.next(), places.next()) {
            (Some(_), Some((place, _)), None) => Some(place),
            _ => None,
        };
        let mut name = rendered.to_owned();
        if let Some(byte) = place.and_then(|place| name.get_mut(place)) {
            *byte = b'1';
        }
        let name = safe(&name, fixed)?;
        Ok(self.below(&match place.and_then(|place| Some((name.get(..place)?, name.get(place + 1..)?))) {
            Some((before, after)) => {
                self.check_unique(before, after)?;
                format!("{before}{NUMBER}{after}")
            }
            None => name.to_owned(),
        }))
    }

    /// Refuses a name from which another place of the number could be read. Otherwise objects of two names
    /// could have one path: of `{host}{number}`, the hosts `a` and `a1` have the path `a11`.
    fn check_unique(&self, before: &str, after: &str) -> Result<(), String> {
        let Some((digits, template)) = &self.number else { return Ok(()) };
        let shown = || format!("{before}{{number}}{after}").escape_debug().to_string();
        let (left, right) = (self.before.suffix(), template.prefix());
        let (of_left, of_right) = (digits_at_end(left), digits_at_start(right));
        if digits_at_end(before) != of_left || digits_at_start(after) != of_right {
            return Err(format!(
                "the file name `{}` has a digit of a value beside the number, so another name could be the same: \
                 write another character between the two",
                shown()
            ));
        }
        if self.before.is_constant() || template.is_constant() {
            return Ok(());
        }
        let is_like_number = |text: &str, range: Range<usize>| {
            let follows =
                |text: &str, of: &str| of.is_empty() || text.chars().next_back() == of.chars().next_back();
            let precedes = |text: &str, of: &str| of.is_empty() || text.chars().next() == of.chars().next();
            range.len() >= digits + of_left + of_right
                && follows(&text[..range.start], &left[..left.len() - of_left])
                && precedes(&text[range.end..], &right[of_right..])
        };
        // The digits beside the place belong to the number.
        let (start, end) = (before.len() - of_left, of_right);
        let is_in_before = runs(before).any(|run| run.end <= start && is_like_number(before, run));
        let is_in_after = runs(after).any(|run| run.start >= end && is_like_number(after, run));
        if is_in_before || is_in_after {
            return Err(format!(
                "the file name `{}` has digits that could be the number, so another name could be the same: write \
                 `{{number:5}}` for a number with more digits, or place it before or after all values",
                shown()
            ));
        }
        Ok(())
    }

    fn below(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }
}

/// Shows the paths of the messages of a batch, for a dry run.
pub(super) struct ShownPaths {
    pub(super) paths: ObjectPaths,
    pub(super) shown: Box<dyn Fn(&str) -> String + Send>,
}

impl Naming for ShownPaths {
    fn names(&mut self, batch: &Batch) -> Vec<String> {
        let mut names = vec![String::new(); batch.rows()];
        let (named, rejected) = self.paths.group(batch);
        let mut put = |row: u32, name: &str| {
            if let Some(slot) = names.get_mut(row as usize) {
                name.clone_into(slot);
            }
        };
        for Named { path, rows } in named {
            let name = (self.shown)(&path.replace(NUMBER, "{number}"));
            rows.into_iter().for_each(|row| put(row, &name));
        }
        rejected.into_iter().for_each(|(row, reason)| put(row, &format!("nowhere: {reason}")));
        names
    }
}

/// Returns the number of digits at the end of a text.
fn digits_at_end(text: &str) -> usize {
    text.len() - text.trim_end_matches(|character: char| character.is_ascii_digit()).len()
}

/// Returns the number of digits at the beginning of a text.
fn digits_at_start(text: &str) -> usize {
    text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len()
}

/// Returns the places of adjacent digits in a text, each as long as possible.
fn runs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text.get(at..)?.find(|character: char| character.is_ascii_digit())?;
        at = start + digits_at_start(text.get(start..)?);
        Some(start..at)
    })
}

/// Parses the text between braces, which begins at byte `at` of the template.
fn piece(inside: &str, at: usize) -> Result<Piece, FormatError> {
    let (name, format) = match inside.split_once(':') {
        Some((name, format)) => (name, Some(format)),
        None => (inside, None),
    };
    let place = at..at + inside.len();
    match (name.trim(), format) {
        ("number", format) => padding::digits(format, place).map(Piece::Number),
        // Checked here for its place in the whole text.
        _ => match format!("{{{inside}}}").parse::<Template>() {
            Ok(_) => Ok(Piece::Text(format!("{{{inside}}}"))),
            Err(error) => {
                let range = error.range.clone().map(|range| range.start + at - 1..range.end + at - 1);
                Err(FormatError { range, ..error })
            }
        },
    }
}

/// How objects of one path are numbered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    digits: usize,
    /// True if messages decide the paths.
    is_of_many: bool,
}

impl Numbers {
    /// True if the template of this path places the number.
    pub(super) fn has_place(path: &str) -> bool {
        path.contains(NUMBER)
    }

    /// True if the first object of this path has a number as well. So has a path that messages decided and
    /// that looks like one with a number: `a-00002.jsonl` is the second object of `a.jsonl`.
    pub(super) fn begin_at_first(self, path: &str) -> bool {
        let (stem, _) = part_name::split(path);
        let digits = digits_at_end(stem);
        let has_label = digits >= self.digits && stem[..stem.len() - digits].ends_with('-');
        Self::has_place(path) || self.is_of_many && has_label
    }

    /// Returns the path of the object with this number: `all.jsonl` and 7 are `all-00007.jsonl`.
    pub(super) fn path(self, path: &str, number: u64) -> String {
        let digits = self.digits;
        match path.split_once(NUMBER) {
            Some((before, after)) => format!("{before}{number:0digits$}{after}"),
            None => part_name::labelled(path, &format!("{number:0digits$}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, StringViewArray};
    use arrow_schema::{DataType, Field};
    use proptest::prelude::*;
    use thalweg_engine::testing::batch;

    use super::*;

    fn with_hosts(hosts: &[Option<&str>]) -> Batch {
        let column: ArrayRef = Arc::new(StringViewArray::from(hosts.to_vec()));
        let rows = column.len();
        let field = Field::new("host", DataType::Utf8View, true);
        batch(vec!["x"; rows]).set_fields([(field, column)]).unwrap()
    }

    /// Paths with their rows, and rejected rows with the reasons.
    type Grouped = (Vec<(String, Vec<u32>)>, Vec<(u32, String)>);

    fn grouped(text: &str, hosts: &[Option<&str>]) -> Grouped {
        let mut path = ObjectPaths::parse("base/".to_owned(), text).unwrap();
        let (named, rejected) = path.group(&with_hosts(hosts));
        let numbers = path.numbers();
        let shown = |named: Named| match Numbers::has_place(&named.path) {
            true => (numbers.path(&named.path, 7), named.rows),
            false => (named.path, named.rows),
        };
        (named.into_iter().map(shown).collect(), rejected)
    }

    #[test]
    fn messages_of_one_name_are_together_and_null_is_nothing() {
        let (named, rejected) =
            grouped("day={host}/{number:3}.log", &[Some("a"), None, Some("a"), Some("b")]);
        let expected = [
            ("base/day=a/007.log", vec![0, 2]),
            ("base/day=/007.log", vec![1]),
            ("base/day=b/007.log", vec![3]),
        ];
        assert_eq!(named, expected.map(|(path, rows)| (path.to_owned(), rows)));
        assert!(rejected.is_empty());
        assert_eq!(grouped("{host}-{number}", &[Some("a")]).0[0].0, "base/a-7");
    }

    #[test]
    fn values_that_make_no_path_are_rejected_with_the_rule_of_files() {
        let (named, rejected) = grouped("{host}/x-{number}", &[Some("a"), Some(".."), None, Some("a\0b")]);
        assert_eq!(named.len(), 1);
        let reasons: Vec<(u32, &str)> = rejected.iter().map(|(row, why)| (*row, why.as_str())).collect();
        let expected = [
            (1, "the file name `../x-1` has `..` in it"),
            (2, "the file name `/x-1` has an empty part: `host` has no value"),
            (3, "the file name `a\\0b/x-\\0` holds a NUL byte"),
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn a_name_from_which_another_number_could_be_read_is_rejected() {
        let names = |text: &str, hosts: &[&str]| {
            let hosts: Vec<Option<&str>> = hosts.iter().copied().map(Some).collect();
            let (named, rejected) = grouped(text, &hosts);
            (named.len(), rejected.into_iter().map(|(row, _)| row).collect::<Vec<_>>())
        };
        assert_eq!(names("{host}{number}", &["a", "a1", "1a"]), (2, vec![1]));
        assert_eq!(names("{host}/v2{number}.log", &["a", "1"]), (2, vec![]));
        assert_eq!(names("x{number}{host}", &["a", "1", "-1"]), (2, vec![1]));
        assert_eq!(names("{host}-{number}-{host}", &["a", "a-2-b", "2", "2-b"]), (2, vec![1, 3]));
        let hosts = ["a", "a-2-b", "a-00002-b", "2026-11-25"];
        assert_eq!(names("{host}-{number:5}-{host}", &hosts), (3, vec![2]));
        let (_, rejected) = grouped("{host}{number}.log", &[Some("a1")]);
        let expected = "the file name `a1{number}.log` has a digit of a value beside the number, so another name could \
                        be the same: write another character between the two";
        assert_eq!(rejected, [(0, expected.to_owned())]);
    }

    #[test]
    fn a_name_is_a_template_of_files_or_of_messages() {
        let mistake = |text: &str| text.parse::<ObjectName>().unwrap_err().message;
        for text in ["{folder}{name}", "{host}/{time:%Y}-{number}.parquet", "{{x}}", "all.jsonl"] {
            text.parse::<ObjectName>().unwrap();
        }
        assert_eq!(mistake("{number}{number}"), "`{number}` is there twice.");
        assert_eq!(mistake("{number:x}"), "`x` is not a number of digits from 1 to 20.");
        assert_eq!(mistake("{a"), "A `{` without its `}`.");
        let path = |text: &str| ObjectPaths::parse("b/".to_owned(), text).unwrap().constant();
        assert_eq!(path("{{a}}.log").as_deref(), Some("b/{a}.log"));
        assert_eq!(path("a-{number:2}.log").as_deref(), Some("b/a-\0.log"));
        assert_eq!((path("{a}"), path("x{number}{a}")), (None, None));
    }

    proptest! {
        #[test]
        fn no_two_names_have_an_object_in_common(
            text in prop::sample::select(vec![
                "{host}", "{host}.log", "{host}/x.log", "{host}{number}", "{host}-{number:2}.log", "{host}2{number}",
                "{host}-{number}-{host}", "x/{number}{host}", "{host}0{number}1{host}", "{host}-{number:2}.{host}",
            ]),
            values in prop::collection::btree_set("([a./-]|-0000|1|2){1,6}", 2..8),
        ) {
            let hosts: Vec<Option<&str>> = values.iter().map(|value| Some(value.as_str())).collect();
            let mut paths = ObjectPaths::parse(String::new(), text).unwrap();
            let (named, _) = paths.group(&with_hosts(&hosts));
            let numbers = paths.numbers();
            let mut taken = HashMap::new();
            for Named { path, .. } in named {
                let is_numbered = numbers.begin_at_first(&path);
                let plain = (!is_numbered).then(|| path.clone());
                let first = if is_numbered { 1 } else { 2 };
                for object in plain.into_iter().chain((first..130).map(|number| numbers.path(&path, number))) {
                    let other = taken.insert(object.clone(), path.clone());
                    prop_assert_eq!(other, None, "{}", object);
                }
            }
        }

        #[test]
        fn no_value_leads_out_of_the_folder(values in prop::collection::vec("[a./\\x00é]{0,8}", 1..6)) {
            let hosts: Vec<Option<&str>> = values.iter().map(|value| Some(value.as_str())).collect();
            let (named, rejected) = grouped("out/{host}{number}", &hosts);
            let rows = named.iter().map(|(_, rows)| rows.len()).sum::<usize>() + rejected.len();
            prop_assert_eq!(rows, values.len());
            for (path, _) in named {
                let rest = path.strip_prefix("base/out/").unwrap();
                let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
                prop_assert!(rest.split('/').all(plain), "{path}");
            }
        }
    }
}
