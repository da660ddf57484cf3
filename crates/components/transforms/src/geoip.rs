//! Looks up the location of an IP address in a database of MaxMind's format.
//!
//! The database is read once and shared by all instances of the transform. Neighbouring messages in a log
//! often have the same address, so the last address and its result are cached.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use maxminddb::{PathElement, Reader};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, Share};

use crate::kept::Kept;
use thalweg_codec::columns::{Columns, FieldType, RowParser, Typing, parse_rows, shortened};
use thalweg_codec::target::Input;

/// Looks up the location of an IP address (IPv4 or IPv6).
///
/// Each entry of `fields` becomes a field. For an address that is not in the database, all of them are NULL.
/// A text that is not an address leaves by the `errors` output. Databases are available from MaxMind
/// (GeoLite2 or GeoIP2; the `City` databases have all fields) and from others that use this format.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeoIp {
    #[serde(flatten)]
    input: Input,
    /// The path of the database, a file that ends in `.mmdb`. It is read when the run starts, and counts on
    /// `memory`.
    database: PathBuf,
    /// The facts to look up, each of which becomes a field: `city`, `country`, `country-code`, `continent`,
    /// `continent-code` (names are in English), `timezone`, `location` (latitude and longitude as a JSON
    /// array), `location-hash` (a geohash of twelve characters), `proxy` and `satellite` (true or false). The
    /// default is `[city, country, continent, location-hash]`.
    #[serde(default = "usual")]
    fields: List<Fact, 1>,
    /// A prefix for the name of each field. The default is empty.
    #[serde(default)]
    prefix: String,
    #[serde(skip)]
    opened: Arc<Mutex<Weak<Database>>>,
}

fn usual() -> List<Fact, 1> {
    vec![Fact::City, Fact::Country, Fact::Continent, Fact::LocationHash].into()
}

/// A fact about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fact {
    /// The name of the city, in English.
    City,
    /// The name of the country, in English.
    Country,
    /// The country's code of two letters.
    CountryCode,
    /// The name of the continent, in English.
    Continent,
    /// The continent's code of two letters.
    ContinentCode,
    /// The name of the time zone.
    Timezone,
    /// Latitude and longitude, as a JSON array.
    Location,
    /// Latitude and longitude as a geohash of twelve characters.
    LocationHash,
    /// True if the address is an anonymous proxy.
    Proxy,
    /// True if the address belongs to a satellite provider.
    Satellite,
}

impl Fact {
    fn name(self) -> &'static str {
        match self {
            Fact::City => "city",
            Fact::Country => "country",
            Fact::CountryCode => "country-code",
            Fact::Continent => "continent",
            Fact::ContinentCode => "continent-code",
            Fact::Timezone => "timezone",
            Fact::Location => "location",
            Fact::LocationHash => "location-hash",
            Fact::Proxy => "proxy",
            Fact::Satellite => "satellite",
        }
    }

    fn kind(self) -> FieldType {
        match self {
            Fact::Location => FieldType::Json,
            Fact::Proxy | Fact::Satellite => FieldType::Bool,
            _ => FieldType::Text,
        }
    }

    /// The path of the fact in a record of the database; empty for facts made from two values.
    fn path(self) -> &'static [&'static str] {
        match self {
            Fact::City => &["city", "names", "en"],
            Fact::Country => &["country", "names", "en"],
            Fact::CountryCode => &["country", "iso_code"],
            Fact::Continent => &["continent", "names", "en"],
            Fact::ContinentCode => &["continent", "code"],
            Fact::Timezone => &["location", "time_zone"],
            Fact::Proxy => &["traits", "is_anonymous_proxy"],
            Fact::Satellite => &["traits", "is_satellite_provider"],
            Fact::Location | Fact::LocationHash => &[],
        }
    }
}

impl Component for GeoIp {
    const NAME: &'static str = "geoip";
    const EXAMPLE: &'static str = r#"
sources:
  access: { generate: { lines: ["client=81.2.69.142 path=/"] } }
pipelines:
  main:
    from: access
    transforms:
      - parse_logfmt: {}
      - geoip: { field: client, database: "GeoLite2-City.mmdb", fields: [country, city], prefix: "client-" }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for GeoIp {
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let lookup = self.lookup(&context.memory)?;
        let named = self.fields.iter().map(|fact| (format!("{}{}", self.prefix, fact.name()), fact.kind()));
        let types = named.clone().collect();
        Ok(Box::new(Locator {
            input: self.input.clone(),
            lookup,
            columns: Columns::new(Typing::new(&types, None), named.map(|(name, _)| name)),
        }))
    }
}

impl GeoIp {
    /// Creates the options for other transforms, which look up these facts.
    pub(crate) fn of(database: PathBuf, fields: Vec<Fact>) -> Self {
        Self {
            input: Input::default(),
            database,
            fields: fields.into(),
            prefix: String::new(),
            opened: Arc::default(),
        }
    }

    /// Reads the database, for looking up the facts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn lookup(&self, memory: &Share) -> Result<Lookup, Error> {
        let found = vec![None; self.fields.len()];
        Ok(Lookup { database: self.open(memory)?, facts: self.fields.to_vec(), last: None, found })
    }

    /// Reads the database, or shares that of another worker of the run.
    fn open(&self, memory: &Share) -> Result<Arc<Database>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = opened.upgrade() {
            return Ok(database);
        }
        let unreadable = |error: &dyn std::fmt::Display| {
            Error::permanent(format!("the database `{}` cannot be read: {error}", self.database.display()))
        };
        let bytes = std::fs::read(&self.database).map_err(|error| unreadable(&error))?;
        let mut kept = Kept::new(memory);
        kept.set(bytes.len());
        let reader = Reader::from_source(bytes).map_err(|error| unreadable(&error))?;
        let database = Arc::new(Database { reader, _kept: kept });
        *opened = Arc::downgrade(&database);
        Ok(database)
    }
}

/// Looks up addresses one after the other.
pub(crate) struct Lookup {
    database: Arc<Database>,
    facts: Vec<Fact>,
    /// The last address, and the facts that were found for it.
    last: Option<IpAddr>,
    found: Vec<Option<String>>,
}

/// A database, which all workers of a run share.
struct Database {
    reader: Reader<Vec<u8>>,
    _kept: Kept,
}

struct Locator {
    input: Input,
    lookup: Lookup,
    columns: Columns,
}

impl RowParser for Locator {
    fn input(&self) -> &Input {
        &self.input
    }

    fn columns(&mut self) -> &mut Columns {
        &mut self.columns
    }

    fn parse(&mut self, text: &str) -> Result<(), String> {
        let address: IpAddr =
            text.trim_ascii().parse().map_err(|_| format!("`{}` is not an address", shortened(text)))?;
        for (column, found) in self.lookup.of(address)?.iter().enumerate() {
            self.columns.push_if_any(column, found.as_deref())?;
        }
        Ok(())
    }
}

impl Lookup {
    /// Returns the facts about an address, in the order in which they were asked for.
    ///
    /// # Errors
    /// The reason why the database cannot tell.
    pub(crate) fn of(&mut self, address: IpAddr) -> Result<&[Option<String>], String> {
        if self.last != Some(address) {
            self.last = None;
            self.look_up(address).map_err(|error| format!("`{address}` cannot be looked up: {error}"))?;
            self.last = Some(address);
        }
        Ok(&self.found)
    }

    fn look_up(&mut self, address: IpAddr) -> Result<(), maxminddb::MaxMindDbError> {
        let Self { database, facts, found, .. } = self;
        let result = database.reader.lookup(address)?;
        let number = |name: &'static str| {
            result.decode_path::<f64>(&[PathElement::Key("location"), PathElement::Key(name)])
        };
        for (fact, found) in facts.iter().zip(found) {
            let path: Vec<PathElement<'_>> = fact.path().iter().map(|key| PathElement::Key(key)).collect();
            *found = match fact {
                Fact::Location | Fact::LocationHash => match (number("latitude")?, number("longitude")?) {
                    (Some(y), Some(x)) if *fact == Fact::Location => Some(format!("[{y},{x}]")),
                    // Coordinates that are not on the earth have no geohash.
                    (Some(y), Some(x)) => geohash::encode(geohash::Coord { x, y }, 12).ok(),
                    _ => None,
                },
                // The database only lists addresses for which these are true.
                Fact::Proxy | Fact::Satellite if result.has_data() => {
                    Some(result.decode_path::<bool>(&path)?.unwrap_or(false).to_string())
                }
                _ => result.decode_path::<&str>(&path)?.map(str::to_owned),
            };
        }
        Ok(())
    }
}

impl Transform for Locator {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        Ok(parse_rows(self, batch, out)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use serde_json::{Value, json};
    use thalweg_engine::{TransformConfig, testing};

    /// Writes a value in the format's data section. Floating-point numbers are doubles. Whole numbers have
    /// the size that their key requires.
    fn write(value: &Value, key: &str, out: &mut Vec<u8>) {
        let start = |kind: u8, size: usize, out: &mut Vec<u8>| {
            let (low, more) = if size < 29 { (size as u8, None) } else { (29, Some((size - 29) as u8)) };
            match kind {
                1..=7 => out.push(kind << 5 | low),
                _ => out.extend([low, kind - 7]),
            }
            out.extend(more);
        };
        match value {
            Value::String(text) => {
                start(2, text.len(), out);
                out.extend(text.as_bytes());
            }
            Value::Number(number) => match number.as_u64() {
                Some(number) => {
                    let (kind, size) = match key {
                        "build_epoch" => (9, 8),
                        "node_count" => (6, 4),
                        _ => (5, 2),
                    };
                    start(kind, size, out);
                    out.extend(&number.to_be_bytes()[8 - size..]);
                }
                None => {
                    start(3, 8, out);
                    out.extend(number.as_f64().unwrap().to_be_bytes());
                }
            },
            Value::Bool(value) => start(14, usize::from(*value), out),
            Value::Array(items) => {
                start(11, items.len(), out);
                items.iter().for_each(|item| write(item, "", out));
            }
            Value::Object(members) => {
                start(7, members.len(), out);
                for (key, value) in members {
                    write(&Value::String(key.clone()), "", out);
                    write(value, key, out);
                }
            }
            Value::Null => panic!("the format has no null"),
        }
    }

    /// Writes a database of IPv4 in which the addresses of each first byte have one record.
    ///
    /// Its tree has one node per bit, with two records of 24 bits each. A record is the number of a node, or
    /// an offset in the data. Offsets follow the number of nodes and a gap of 16.
    fn database(records: &[(u8, Value)], to: &Path) {
        let mut nodes: Vec<[Option<usize>; 2]> = vec![[None; 2]];
        let mut leaves = Vec::new();
        let mut data = Vec::new();
        for (first, record) in records {
            let mut node = 0;
            for bit in (1..8).rev() {
                let side = usize::from(first >> bit & 1);
                node = match nodes[node][side] {
                    Some(next) => next,
                    None => {
                        nodes.push([None; 2]);
                        let next = nodes.len() - 1;
                        nodes[node][side] = Some(next);
                        next
                    }
                };
            }
            leaves.push((node, usize::from(first & 1), data.len()));
            write(record, "", &mut data);
        }
        let count = nodes.len();
        let mut tree: Vec<[usize; 2]> =
            nodes.iter().map(|sides| sides.map(|side| side.unwrap_or(count))).collect();
        for (node, side, place) in leaves {
            tree[node][side] = count + 16 + place;
        }
        let mut file: Vec<u8> =
            tree.iter().flatten().flat_map(|record| (*record as u32).to_be_bytes()[1..].to_vec()).collect();
        file.extend([0; 16]);
        file.extend(data);
        file.extend(b"\xab\xcd\xefMaxMind.com");
        write(
            &json!({
                "node_count": count, "record_size": 24, "ip_version": 4, "database_type": "Test-City", "languages": ["en"],
                "binary_format_major_version": 2, "binary_format_minor_version": 0, "build_epoch": 1_700_000_000,
                "description": {"en": "a test"},
            }),
            "",
            &mut file,
        );
        std::fs::write(to, file).unwrap();
    }

    fn in_database(options: &str, lines: &[&str]) -> testing::Given {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.mmdb");
        let london = json!({
            "city": {"names": {"de": "Londinium", "en": "London"}},
            "country": {"iso_code": "GB", "names": {"en": "United Kingdom"}},
            "continent": {"code": "EU", "names": {"en": "Europe"}},
            "location": {"latitude": 51.5142, "longitude": -0.0931, "time_zone": "Europe/London"},
        });
        database(&[(81, london), (82, json!({"traits": {"is_anonymous_proxy": true}}))], &path);
        let yaml = format!("{{database: '{}', {options}}}", path.display());
        testing::transform_conforms::<GeoIp>(&yaml, lines);
        testing::apply::<GeoIp>(&yaml, [testing::batch(lines)])
    }

    #[test]
    fn an_address_is_looked_up() {
        let given = in_database(
            "prefix: c_",
            &["81.2.69.142", "82.1.1.1", "1.1.1.1", "localhost", "", "81.2.69.143"],
        );
        let london = json!({"c_city": "London", "c_country": "United Kingdom", "c_continent": "Europe"});
        let rows = given.main();
        assert_eq!(rows.len(), 4);
        let (place, ..) = geohash::decode(rows[0]["c_location-hash"].as_str().unwrap()).unwrap();
        assert!((place.y - 51.5142).abs() < 1e-5 && (place.x + 0.0931).abs() < 1e-5, "{place:?}");
        for name in ["c_city", "c_country", "c_continent"] {
            assert_eq!(rows[0][name], london[name]);
            assert_eq!(rows[3][name], london[name]);
        }
        assert_eq!(rows[1..3], [json!({}), json!({})]);
        assert_eq!(given.errors()[0], ("localhost".to_owned(), "`localhost` is not an address".to_owned()));
    }

    #[test]
    fn all_that_is_known_can_be_asked() {
        let options =
            "fields: [country-code, continent-code, timezone, location, proxy, satellite], skip_empty: true";
        let given = in_database(options, &["81.2.69.142", "82.1.1.1", "::1", ""]);
        assert_eq!(
            given.main(),
            [
                json!({"country-code": "GB", "continent-code": "EU", "timezone": "Europe/London", "location": "[51.5142,-0.0931]",
                       "proxy": false, "satellite": false}),
                json!({"proxy": true, "satellite": false}),
                json!({}),
            ]
        );
        assert_eq!(
            given.reasons(),
            ["`::1` cannot be looked up: invalid input: cannot look up IPv6 address in IPv4-only database"]
        );
    }

    #[test]
    fn a_database_that_is_none_is_an_error() {
        let config = testing::options::<GeoIp>("database: /nothing/there.mmdb");
        let error = config.build(&testing::context()).err().unwrap();
        assert!(error.to_string().contains("`/nothing/there.mmdb` cannot be read"), "{error}");
        assert_eq!(
            testing::refused::<GeoIp>("{database: x, fields: [town]}"),
            "`town` is not known here. It can be `city`, `country`, `country-code`, `continent`, `continent-code`, `timezone`, `location`, `location-hash`, `proxy` or `satellite`."
        );
    }
}
