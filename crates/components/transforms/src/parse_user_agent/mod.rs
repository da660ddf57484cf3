//! Parses user agents: browser, operating system, device.
//!
//! A library that knows the browsers' names identifies the browser. The other facts are read here, by the
//! grammar of product tokens and comments. A log mostly repeats a few user agents, so results are cached.

use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;
use woothee::parser::Parser;

mod products;

use products::Products;
use thalweg_codec::columns::{Columns, FieldType, RowParser, Typing, parse_rows};
use thalweg_codec::target::Input;

use crate::kept::Kept;

/// The maximum number of user agents in the cache.
const REMEMBERED: usize = 4096;

/// The maximum length of a text in the cache, in bytes.
const LONGEST: usize = 1024;

/// The most of a text that is parsed, in bytes: servers accept no longer headers. Its products take many
/// times its memory.
const PARSED: usize = 16 << 10;

/// The bytes of an entry of the cache beside its texts.
const ENTRY: usize = 64;

/// The cache is counted on the budget in steps of this many bytes.
const STEP: usize = 1 << 16;

/// Parses user agents, the HTTP header `User-Agent`.
///
/// A fact that the text does not contain is NULL. Only the first 16 KiB of a text are read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseUserAgent {
    #[serde(flatten)]
    input: Input,
    /// The facts to extract, each of which becomes a field. The default is `[platform, os, localization,
    /// browser]`.
    ///
    /// - `browser` and `browser-version` (also called `version`).
    /// - `os`: the operating system as it is written (`Intel Mac OS X 10_15_7`). `os-family` and `os-version`
    ///   are its name and version.
    /// - `platform` (`Windows`, `iPhone`, `X11`).
    /// - `localization`: a language, such as `en-US`.
    /// - `engine` and `engine-version`.
    /// - `mozilla`: the version of Mozilla that the user agent claims to be.
    /// - `category`: `pc`, `smartphone`, `mobilephone`, `crawler`, `appliance` or `misc`.
    /// - `vendor`.
    /// - `bot` and `mobile`: true or false.
    #[serde(default = "usual")]
    fields: List<Fact, 1>,
    /// A prefix for the name of each field. The default is empty.
    #[serde(default)]
    prefix: String,
}

fn usual() -> List<Fact, 1> {
    vec![Fact::Platform, Fact::Os, Fact::Localization, Fact::Browser].into()
}

/// A fact about a user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fact {
    /// The name of the browser.
    Browser,
    /// The version of the browser.
    BrowserVersion,
    /// The version of the browser, as a field `version`.
    Version,
    /// The operating system as it is written.
    Os,
    /// The name of the operating system.
    OsFamily,
    /// The version of the operating system.
    OsVersion,
    /// The platform, such as `Windows` or `iPhone`.
    Platform,
    /// The language.
    Localization,
    /// The rendering engine.
    Engine,
    /// The version of the rendering engine.
    EngineVersion,
    /// The version of Mozilla that the user agent claims to be.
    Mozilla,
    /// The category, such as `pc` or `crawler`.
    Category,
    /// The vendor of the browser or device.
    Vendor,
    /// True for a crawler.
    Bot,
    /// True for a mobile device.
    Mobile,
}

impl Fact {
    fn name(self) -> &'static str {
        match self {
            Fact::Browser => "browser",
            Fact::BrowserVersion => "browser-version",
            Fact::Version => "version",
            Fact::Os => "os",
            Fact::OsFamily => "os-family",
            Fact::OsVersion => "os-version",
            Fact::Platform => "platform",
            Fact::Localization => "localization",
            Fact::Engine => "engine",
            Fact::EngineVersion => "engine-version",
            Fact::Mozilla => "mozilla",
            Fact::Category => "category",
            Fact::Vendor => "vendor",
            Fact::Bot => "bot",
            Fact::Mobile => "mobile",
        }
    }

    fn kind(self) -> FieldType {
        if matches!(self, Fact::Bot | Fact::Mobile) { FieldType::Bool } else { FieldType::Text }
    }
}

impl Component for ParseUserAgent {
    const NAME: &'static str = "parse_user_agent";
    const EXAMPLE: &'static str = r#"
sources:
  agents:
    generate:
      message: "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:128.0) Gecko/20100101 Firefox/128.0"
      count: 3
pipelines:
  main:
    from: agents
    transforms:
      - parse_user_agent: { fields: [browser, browser-version, os, mobile], prefix: "agent-" }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for ParseUserAgent {
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let named = self.fields.iter().map(|fact| (format!("{}{}", self.prefix, fact.name()), fact.kind()));
        let types = named.clone().collect();
        Ok(Box::new(UserAgentParser {
            input: self.input.clone(),
            facts: self.fields.to_vec(),
            columns: Columns::new(Typing::new(&types, None), named.map(|(name, _)| name)),
            known: HashMap::new(),
            bytes: 0,
            kept: Kept::new(&context.memory),
        }))
    }
}

struct UserAgentParser {
    input: Input,
    facts: Vec<Fact>,
    columns: Columns,
    known: HashMap<Box<str>, Vec<Option<String>>>,
    /// The bytes of the cache, which count on the budget.
    bytes: usize,
    kept: Kept,
}

impl RowParser for UserAgentParser {
    fn input(&self) -> &Input {
        &self.input
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.columns
    }

    fn parse(&mut self, text: &str) -> Result<(), String> {
        let text = text.get(..text.floor_char_boundary(PARSED)).unwrap_or(text);
        if let Some(found) = self.known.get(text) {
            return push(&mut self.columns, found);
        }
        let found = facts_of(text, &self.facts);
        push(&mut self.columns, &found)?;
        if text.len() <= LONGEST {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
                self.bytes = 0;
            }
            self.bytes += ENTRY + text.len() + found.iter().flatten().map(|fact| fact.len()).sum::<usize>();
            self.bytes += found.len() * size_of::<Option<String>>();
            self.kept.set(self.bytes.next_multiple_of(STEP));
            self.known.insert(text.into(), found);
        }
        Ok(())
    }
}

fn push(columns: &mut Columns, found: &[Option<String>]) -> Result<(), String> {
    for (column, found) in found.iter().enumerate() {
        columns.push_if_any(column, found.as_deref())?;
    }
    Ok(())
}

/// Returns facts about a user agent, in their order.
pub(crate) fn facts_of(text: &str, facts: &[Fact]) -> Vec<Option<String>> {
    let products = Products::of(text);
    let known = Parser::new().parse(text).unwrap_or_default();
    let known_as = |value: &str| (!value.is_empty() && value != "UNKNOWN").then(|| value.to_owned());
    let value = |fact: &Fact| match fact {
        Fact::Browser => known_as(known.name).or_else(|| products.first().map(|(name, _)| name.to_owned())),
        Fact::BrowserVersion | Fact::Version => match known_as(known.name) {
            Some(_) => known_as(known.version),
            None => products.first().and_then(|(_, version)| version).map(str::to_owned),
        },
        Fact::Os => products.os(),
        Fact::OsFamily => known_as(known.os),
        Fact::OsVersion => known_as(&known.os_version),
        Fact::Platform => products.platform().map(str::to_owned),
        Fact::Localization => products.language().map(str::to_owned),
        Fact::Engine => products.engine().map(|(name, _)| name.to_owned()),
        Fact::EngineVersion => products.engine().and_then(|(_, version)| version).map(str::to_owned),
        Fact::Mozilla => products.mozilla().map(str::to_owned),
        Fact::Category => known_as(known.category),
        Fact::Vendor => known_as(known.vendor),
        Fact::Bot => Some((known.category == "crawler" || products.is_bot()).to_string()),
        Fact::Mobile => {
            let is_phone = matches!(known.category, "smartphone" | "mobilephone");
            Some((is_phone || products.is_mobile()).to_string())
        }
    };
    facts.iter().map(value).collect()
}

impl Transform for UserAgentParser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        Ok(parse_rows(self, batch, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use thalweg_engine::testing;

    #[test]
    fn it_conforms() {
        testing::transform_conforms::<ParseUserAgent>("{}", &["Mozilla/5.0 (X11)", "", "x", "("]);
    }

    fn parsed(text: &str) -> Value {
        let yaml = "fields: [browser, browser-version, os, platform, localization, engine, engine-version, mozilla, bot, mobile, category]";
        testing::apply::<ParseUserAgent>(yaml, [testing::batch([text])]).main()[0].clone()
    }

    #[test]
    fn what_browsers_say() {
        let phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 10_3_1 like Mac OS X) AppleWebKit/603.1.30 (KHTML, like Gecko) Version/10.0 Mobile/14E304 Safari/602.1";
        assert_eq!(
            parsed(phone),
            json!({"browser": "Safari", "browser-version": "10.0", "os": "CPU iPhone OS 10_3_1 like Mac OS X", "platform": "iPhone",
                   "engine": "AppleWebKit", "engine-version": "603.1.30", "mozilla": "5.0", "bot": false, "mobile": true, "category": "smartphone"})
        );
        let firefox = "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
        assert_eq!(
            parsed(firefox),
            json!({"browser": "Firefox", "browser-version": "128.0", "os": "Ubuntu", "platform": "X11", "engine": "Gecko",
                   "engine-version": "20100101", "mozilla": "5.0", "bot": false, "mobile": false, "category": "pc"})
        );
        let android = "Mozilla/5.0 (Linux; U; Android 2.2; en-us; Nexus One Build/FRF91) AppleWebKit/533.1 (KHTML, like Gecko) Version/4.0 Mobile Safari/533.1";
        let found = parsed(android);
        assert_eq!(
            [&found["os"], &found["platform"], &found["localization"]],
            ["Android 2.2", "Linux", "en-us"]
        );
        assert_eq!((&found["mobile"], &found["engine"]), (&json!(true), &json!("AppleWebKit")));
        let explorer = "Mozilla/5.0 (Windows NT 6.1; WOW64; Trident/7.0; rv:11.0) like Gecko";
        let found = parsed(explorer);
        assert_eq!(
            [&found["browser"], &found["browser-version"], &found["os"]],
            ["Internet Explorer", "11.0", "Windows 7"]
        );
        assert_eq!(
            [&found["engine"], &found["engine-version"], &found["platform"]],
            ["Trident", "7.0", "Windows"]
        );
    }

    #[test]
    fn what_others_say() {
        let bot = parsed("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)");
        assert_eq!(
            [&bot["bot"], &bot["mobile"], &bot["category"]],
            [&json!(true), &json!(false), &json!("crawler")]
        );
        let own = parsed("example-client/1.2 (+https://example.org)");
        assert_eq!(
            [&own["browser"], &own["browser-version"], &own["bot"]],
            [&json!("example-client"), &json!("1.2"), &json!(false)]
        );
        assert_eq!(own.get("mozilla"), None);
        assert_eq!(parsed(""), json!({"bot": false, "mobile": false}));
    }

    #[test]
    fn only_the_beginning_of_a_long_text_is_read() {
        let text = format!("example/1 {}", "ä".repeat(PARSED));
        assert_eq!(parsed(&text)["browser"], json!("example"));
        assert_eq!(parsed(&format!("{} iPhone", " ".repeat(PARSED)))["mobile"], json!(false));
    }

    #[test]
    fn what_was_found_is_remembered() {
        let texts = ["example/1", "example/2", "example/1", "example/1"];
        let given = testing::apply::<ParseUserAgent>(
            "{fields: [browser-version, version], prefix: a.}",
            [testing::batch(texts)],
        );
        let versions: Vec<Value> = given.main().into_iter().map(|row| row["a.version"].clone()).collect();
        assert_eq!(versions, ["1", "2", "1", "1"]);
        assert_eq!(
            testing::refused::<ParseUserAgent>("fields: [colour]"),
            "`colour` is not known here. It can be `browser`, `browser-version`, `version`, `os`, `os-family`, `os-version`, `platform`, `localization`, `engine`, `engine-version`, `mozilla`, `category`, `vendor`, `bot` or `mobile`."
        );
    }
}
