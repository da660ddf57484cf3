//! Parses text by grok patterns.
//!
//! Patterns and notation are those of Logstash. The library expands them to regular expressions with
//! look-around, which it matches by backtracking within a limit. `parse_regex` matches in linear time and is
//! faster; this transform is for existing grok patterns.

use std::collections::BTreeMap;

use grok::{Grok, Pattern};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

use thalweg_codec::columns::{Columns, FieldType, RowParser, Typing, parse_rows, shortened};
use thalweg_codec::target::Input;

/// Parses text by grok patterns such as `%{IP:client} %{WORD:method} %{NUMBER:seconds:float}`.
///
/// The first pattern that matches makes the fields. `%{NAME:field}` refers to a pattern by its name, and
/// `(?<field>...)` is a regular expression. Without `^` and `$`, a pattern may match anywhere in the text. A
/// message that matches no pattern leaves by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseGrok {
    #[serde(flatten)]
    input: Input,
    /// The patterns, which are tried in this order.
    pattern: List<String, 1>,
    /// Additional patterns by name: `{PORT: '\d{1,5}'}`. They override default patterns of the same name.
    #[serde(default)]
    definitions: BTreeMap<String, String>,
    /// True if only patterns with a field name make fields. With `false`, `%{IP}` makes the field `IP`. The
    /// default is `true`.
    #[serde(default = "yes")]
    named_only: bool,
    /// True to make an empty text of a field that matches nothing, or an optional part that is missing. With
    /// `false`, it is NULL. The default is `false`.
    #[serde(default)]
    keep_empty: bool,
    /// True to define the usual patterns (`IP`, `NUMBER`, `COMBINEDAPACHELOG` and about 300 others). The
    /// default is `true`.
    #[serde(default = "yes")]
    default_patterns: bool,
    /// True if `%{NUMBER:name:int}` and `:float` make numbers; a message with a value that does not fit
    /// leaves by the `errors` output. With `false`, all fields are text. The default is `true`.
    #[serde(default = "yes")]
    typed: bool,
    /// A prefix for the name of each field. The default is empty.
    #[serde(default)]
    prefix: String,
}

fn yes() -> bool {
    true
}

/// The same texts as the library's pattern, without an atomic group. The library matches such a group by
/// backtracking, which tries the rest of a long word from each of its letters: a word of 200 KB took 50 s.
const WINPATH: &str = r"(?:[A-Za-z]+:|\\)(?:\\[^\\?*]*)+";

/// A pattern, and its fields.
struct Compiled {
    pattern: Pattern,
    /// For each field, its names in the pattern: several if the field occurs several times.
    fields: Vec<(String, Vec<String>)>,
}

impl ParseGrok {
    fn compile(&self) -> Result<Vec<Compiled>, Mistake> {
        let mut grok = if self.default_patterns { Grok::with_default_patterns() } else { Grok::empty() };
        if self.default_patterns {
            // The older name of `HOSTNAME`.
            grok.add_pattern("HOST", "%{HOSTNAME}");
            grok.add_pattern("WINPATH", WINPATH);
        }
        for (name, definition) in &self.definitions {
            grok.add_pattern(name.as_str(), definition.as_str());
        }
        self.pattern.iter().map(|text| self.compile_one(&grok, text)).collect()
    }

    fn compile_one(&self, grok: &Grok, text: &str) -> Result<Compiled, Mistake> {
        let mistake = |message: String, help: &str| Mistake::new("pattern", message).help(help);
        let pattern = grok.compile(text, self.named_only).map_err(|error| match error {
            grok::Error::DefinitionNotFound(name) => mistake(
                format!("`{}` uses `{name}`, which is not a known pattern.", shortened(text)),
                "Add it to `definitions`, or correct its name.",
            ),
            grok::Error::RecursionTooDeep => mistake(
                format!("The patterns in `{}` use each other in a circle.", shortened(text)),
                "A pattern cannot use itself.",
            ),
            error => {
                // After the first line, the library shows the whole expression.
                let reason = error.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                let message = format!("`{}` is not a pattern: {}", shortened(text), shortened(reason));
                mistake(message, "Everything in it except `%{NAME:field}` is a regular expression.")
            }
        })?;
        let mut fields: Vec<(String, Vec<String>)> = Vec::new();
        for name in pattern.capture_names() {
            let field = again(name).unwrap_or(name);
            match fields.iter_mut().find(|(known, _)| known == field) {
                Some((_, names)) => names.push(name.to_owned()),
                None => fields.push((field.to_owned(), vec![name.to_owned()])),
            }
        }
        if fields.is_empty() {
            return Err(mistake(
                format!("`{}` names no field.", shortened(text)),
                "Name the parts that you want: `%{IP:client}`.",
            ));
        }
        Ok(Compiled { pattern, fields })
    }
}

/// Returns the field if the library named a later occurrence of it `field[1]`.
fn again(name: &str) -> Option<&str> {
    let (field, number) = name.strip_suffix(']')?.rsplit_once('[')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !field.is_empty()).then_some(field)
}

impl Component for ParseGrok {
    const NAME: &'static str = "parse_grok";
    const EXAMPLE: &'static str = r#"
sources:
  access:
    generate:
      message: '10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /index.html HTTP/1.0" 200 2326'
      count: 3
pipelines:
  main:
    from: access
    transforms:
      - parse_grok: { pattern: ['^%{COMMONAPACHELOG}$'] }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.compile().err().into_iter().collect()
    }
}

impl TransformConfig for ParseGrok {
    fn fields(&self) -> Vec<String> {
        vec![self.input.field.clone()]
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let compiled = self.compile().map_err(|mistake| Error::permanent(mistake.message))?;
        let mut names: Vec<String> = Vec::new();
        let mut types = BTreeMap::new();
        let mut patterns = Vec::new();
        for Compiled { pattern, fields } in compiled {
            let mut places: Vec<Vec<String>> = vec![Vec::new(); names.len()];
            for (field, groups) in fields {
                let kind = groups.iter().find_map(|group| match pattern.get_extract(group) {
                    Some("int" | "integer" | "long") => Some(FieldType::Int),
                    Some("float" | "double") => Some(FieldType::Float),
                    _ => None,
                });
                let name = format!("{}{field}", self.prefix);
                if let Some(kind) = kind.filter(|_| self.typed) {
                    types.entry(name.clone()).or_insert(kind);
                }
                let place = names.iter().position(|known| *known == name).unwrap_or(names.len());
                if place == names.len() {
                    names.push(name);
                    places.push(Vec::new());
                }
                if let Some(place) = places.get_mut(place) {
                    *place = groups;
                }
            }
            patterns.push((pattern, places));
        }
        // A pattern has no groups for the columns that only later patterns have.
        patterns.iter_mut().for_each(|(_, places)| places.resize(names.len(), Vec::new()));
        Ok(Box::new(Parser {
            input: self.input.clone(),
            patterns,
            keep_empty: self.keep_empty,
            columns: Columns::new(Typing::new(&types, None), names),
        }))
    }
}

struct Parser {
    input: Input,
    /// Each pattern, with the names of each column in it.
    patterns: Vec<(Pattern, Vec<Vec<String>>)>,
    keep_empty: bool,
    columns: Columns,
}

impl RowParser for Parser {
    fn input(&self) -> &Input {
        &self.input
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.columns
    }

    fn parse(&mut self, text: &str) -> Result<(), String> {
        for (pattern, places) in &self.patterns {
            let Some(found) = pattern.match_against(text) else { continue };
            for (column, groups) in places.iter().enumerate() {
                // If a field occurs several times, mostly in alternatives, the last match counts.
                let is_wanted = |value: &&str| self.keep_empty || !value.is_empty();
                let value = groups.iter().rev().find_map(|group| found.get(group).filter(is_wanted));
                let value = value.or((self.keep_empty && !groups.is_empty()).then_some(""));
                self.columns.push_if_any(column, value)?;
            }
            return Ok(());
        }
        Err(match self.patterns.len() {
            1 => "does not match the pattern".to_owned(),
            count => format!("matches none of the {count} patterns"),
        })
    }
}

impl Transform for Parser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        Ok(parse_rows(self, batch, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::testing;

    #[test]
    fn it_conforms() {
        let yaml = "pattern: ['^%{INT:n:int}$', 'x(?<rest>.*)']";
        testing::transform_conforms::<ParseGrok>(yaml, &["1", "", "xy", "x"]);
    }

    #[test]
    fn the_first_pattern_that_matches_makes_the_fields() {
        let yaml = r"pattern:
- '^(?P<datacenter>[^\.]+?)\.(?P<host>[^\.]+?)\.gauge-(?P<application>[^\.]+?)\.(?P<measurement>[^\s]+?)\s%{NUMBER:gauge:float}\s*%{INT:time}'
- '^(?P<datacenter>[^\.]+?)\.(?P<host>[^\.]+?)\.(?P<measurement>[^\s]+?)\s%{NUMBER:value:float}\s*%{INT:time}'";
        let lines = ["us.web.gauge-app.cpu 42.1 1497005802", "us.web.this.is.it 12.0 1497003802", "nothing"];
        let given = testing::apply::<ParseGrok>(yaml, [testing::batch(lines)]);
        assert_eq!(
            given.main(),
            [
                json!({"application": "app", "datacenter": "us", "gauge": 42.1, "host": "web", "measurement": "cpu", "time": "1497005802"}),
                json!({"datacenter": "us", "host": "web", "measurement": "this.is.it", "time": "1497003802", "value": 12.0}),
            ]
        );
        assert_eq!(given.errors()[0].1, "matches none of the 2 patterns");
        let given = testing::apply::<ParseGrok>(
            &format!("{yaml}\ntyped: false\nprefix: x."),
            [testing::batch(lines)],
        );
        assert_eq!(given.main()[1]["x.value"], "12.0");
    }

    #[test]
    fn patterns_by_name_are_known_or_defined() {
        let one = |yaml: &str, line: &str| {
            testing::apply::<ParseGrok>(yaml, [testing::batch([line])]).main()[0].clone()
        };
        assert_eq!(
            one(
                "pattern: ['%{COMMONAPACHELOG}']",
                r#"::1 - ann [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 -"#
            ),
            json!({"auth": "ann", "clientip": "::1", "httpversion": "1.0", "ident": "-", "request": "/a", "response": "200",
                   "timestamp": "10/Oct/2000:13:55:36 -0700", "verb": "GET"})
        );
        let yaml = "{pattern: ['%{COLOUR:c}'], definitions: {COLOUR: 'red|blue'}}";
        assert_eq!(one(yaml, "a blue one"), json!({"c": "blue"}));
        assert_eq!(one("{pattern: ['%{INT} %{HOST}'], named_only: false}", "7 web")["INT"], "7");
        assert_eq!(one("pattern: ['(a %{INT:x}|b %{WORD:x})']", "b cd"), json!({"x": "cd"}));
        assert_eq!(
            one("{pattern: ['<(?<a>.*?)>(?<b>x)?'], keep_empty: true}", "<>"),
            json!({"a": "", "b": ""})
        );
        assert_eq!(one("pattern: ['<(?<a>.*?)>(?<b>x)?']", "<>"), json!({}));
    }

    #[test]
    fn a_path_is_found_behind_a_word_of_a_mebibyte() {
        let one =
            |line: &str| testing::apply::<ParseGrok>("pattern: ['%{PATH:p}']", [testing::batch([line])]);
        let word = "a".repeat(1 << 20);
        assert_eq!(one(&word).errors()[0].1, "does not match the pattern");
        for (line, path) in [
            (&*format!("{word} c:\\x y"), "c:\\x y"),
            ("in /var/log x", "/var/log"),
            ("\\\\host\\share", "\\\\host\\share"),
            ("1ab:\\x\\y?", "ab:\\x\\y"),
        ] {
            assert_eq!(one(line).main()[0], json!({ "p": path }));
        }
    }

    #[test]
    fn all_patterns_that_come_along_are_right() {
        for (name, _) in grok::patterns() {
            let yaml = format!("pattern: ['%{{{name}:x}}']");
            let mistakes = testing::options::<ParseGrok>(&yaml).check();
            assert!(mistakes.is_empty(), "{name}: {}", mistakes[0].message);
        }
    }

    #[test]
    fn mistakes_name_the_pattern() {
        let mistake = |yaml: &str| testing::options::<ParseGrok>(yaml).check()[0].message.clone();
        assert_eq!(
            mistake("pattern: ['%{NOTHING:x}']"),
            "`%{NOTHING:x}` uses `NOTHING`, which is not a known pattern."
        );
        assert_eq!(
            mistake("{pattern: ['%{INT:x}'], default_patterns: false}"),
            "`%{INT:x}` uses `INT`, which is not a known pattern."
        );
        assert_eq!(mistake("pattern: ['%{INT}']"), "`%{INT}` names no field.");
        assert!(mistake("pattern: ['(%{INT:x}']").starts_with("`(%{INT:x}` is not a pattern: "));
        assert_eq!(
            mistake("{pattern: ['%{A:x}'], definitions: {A: '%{A}'}}"),
            "The patterns in `%{A:x}` use each other in a circle."
        );
    }
}
