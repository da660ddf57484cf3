//! Writes points for InfluxDB: from JSON (`format.JSONToInflux10`), and from what collectd sends
//! (`format.CollectdToInflux08`, `09` and `10`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write as _;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::timestamps::{TimeFormat, TimeParser};
use thalweg_config::List;

use super::raw::{Raw, object};

/// Writes a JSON object as a point in InfluxDB's line protocol.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonToInflux {
    /// The member that holds the measurement. The default is `measurement`.
    #[serde(default = "measurement")]
    measurement: String,
    /// The member that holds the time. Without it, the point has the present time. The default is `time`.
    #[serde(default = "time")]
    time: String,
    /// The format of the time, as for `parse_timestamp`. The default is `unix`.
    #[serde(default = "unix")]
    format: String,
    /// The members that become tags. The others become fields.
    #[serde(default)]
    tags: List<String>,
    /// The members that are left out.
    #[serde(default)]
    ignore: List<String>,
}

fn measurement() -> String {
    "measurement".to_owned()
}

fn time() -> String {
    "time".to_owned()
}

fn unix() -> String {
    "unix".to_owned()
}

/// Writes one point after the other.
#[derive(Debug)]
pub(super) struct Points {
    options: JsonToInflux,
    tags: BTreeSet<String>,
    ignored: BTreeSet<String>,
    times: TimeParser,
}

impl JsonToInflux {
    /// Prepares the reading of times.
    ///
    /// # Errors
    /// A wrong format.
    pub(super) fn build(&self) -> Result<Points, String> {
        let times = TimeParser::new(TimeFormat::parse(&self.format)?, 0);
        let tags = self.tags.iter().cloned().collect();
        let ignored = self.ignore.iter().cloned().collect();
        Ok(Points { options: self.clone(), tags, ignored, times })
    }
}

impl Points {
    /// Appends the point.
    ///
    /// # Errors
    /// The reason why the value does not have one.
    pub(super) fn write(&mut self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut members = object(value)?;
        let seconds = match members.remove(&*self.options.time) {
            // A time that cannot be read is written as 0, as in gollum.
            Some(time) => {
                let time = time.scalar().and_then(|text| self.times.parse(&text));
                time.map_or(0, |time| time.div_euclid(1_000_000))
            }
            None => chrono::Utc::now().timestamp(),
        };
        let name = &self.options.measurement;
        let measurement = members.remove(&**name);
        let measurement = measurement
            .as_ref()
            .and_then(Raw::scalar)
            .ok_or_else(|| format!("the member `{name}` is missing"))?;
        escape(&measurement, &[',', ' '], out);
        let members: Vec<(&str, Cow<'_, str>)> = members
            .iter()
            .filter(|(name, _)| !self.ignored.contains(&***name))
            .map(|(name, value)| {
                let text =
                    value.scalar().ok_or_else(|| format!("the member `{name}` is not a single value"))?;
                Ok((&**name, text))
            })
            .collect::<Result<_, String>>()?;
        let is_tag = |name: &str| self.tags.contains(name);
        for (name, text) in members.iter().filter(|(name, _)| is_tag(name)) {
            out.push(b',');
            escape(name, &[',', '=', ' '], out);
            out.push(b'=');
            escape(text, &[',', '=', ' '], out);
        }
        out.push(b' ');
        for (index, (name, text)) in members.iter().filter(|(name, _)| !is_tag(name)).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            escape(name, &[',', '=', ' '], out);
            out.push(b'=');
            escape(text, &['"'], out);
        }
        // Writing to memory cannot fail.
        let _ = write!(out, " {seconds}");
        Ok(())
    }
}

/// Appends a text with a backslash before each of these characters.
fn escape(text: &str, characters: &[char], out: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    for character in text.chars() {
        if characters.contains(&character) {
            out.push(b'\\');
        }
        out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
}

/// Writes collectd's JSON as points.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CollectdToInflux {
    /// The form of the points.
    version: Version,
}

/// A version of InfluxDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum Version {
    /// JSON for InfluxDB 0.8.
    #[serde(rename = "0.8")]
    V08,
    /// JSON for InfluxDB 0.9.0.
    #[serde(rename = "0.9.0")]
    V09,
    /// The line protocol of InfluxDB 0.9.1 and later.
    #[serde(rename = "0.9.1")]
    V10,
}

/// A packet of collectd.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Packet {
    values: Vec<f64>,
    dstypes: Vec<String>,
    dsnames: Vec<String>,
    time: f64,
    host: String,
    plugin: String,
    plugin_instance: String,
    r#type: String,
    type_instance: String,
}

impl CollectdToInflux {
    /// Appends the points of a packet.
    ///
    /// # Errors
    /// The reason why the value is not a packet.
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let trims = |byte: &u8| matches!(byte, b' ' | b'\t' | b',');
        let start = value.iter().position(|byte| !trims(byte)).unwrap_or(value.len());
        let end = value.iter().rposition(|byte| !trims(byte)).map_or(start, |last| last + 1);
        let packet: Packet = serde_json::from_slice(value.get(start..end).unwrap_or_default())
            .map_err(|error| format!("it is not a packet of collectd: {error}"))?;
        match self.version {
            Version::V08 => packet.in_08(out),
            Version::V09 => packet.in_09(out),
            Version::V10 => packet.in_10(out),
        }
        Ok(())
    }
}

/// The methods write to memory, which cannot fail.
impl Packet {
    fn in_08(&self, out: &mut Vec<u8>) {
        let dashed = |text: &str| if text.is_empty() { String::new() } else { format!("-{text}") };
        let name = format!(
            "{}.{}{}.{}{}",
            self.host,
            self.plugin,
            dashed(&self.plugin_instance),
            self.r#type,
            dashed(&self.type_instance)
        );
        let time = self.time as i32;
        for value in &self.values {
            let _ = write!(
                out,
                r#"{{"name": "{name}", "columns": ["time", "value"], "points":[[{time}, {value:.6}]]}},"#
            );
        }
    }

    /// Returns the values with their types and names.
    fn sets(&self) -> impl Iterator<Item = (&String, &String, &f64)> {
        let sets = self.dstypes.iter().zip(&self.dsnames).zip(&self.values);
        sets.map(|((kind, name), value)| (kind, name, value))
    }

    fn in_09(&self, out: &mut Vec<u8>) {
        let Self { plugin, plugin_instance, r#type, type_instance, host, .. } = self;
        let time = self.time as i64;
        for (kind, name, value) in self.sets() {
            let _ = write!(
                out,
                r#"{{"name": "{plugin}", "timestamp": {time}, "precision": "ms", "tags": {{"plugin_instance": "{plugin_instance}", "type": "{type}", "type_instance": "{type_instance}", "host": "{host}", "dstype": "{kind}", "dsname": "{name}"}}, "fields": {{"value": {value:.6}}} }},"#
            );
        }
    }

    fn in_10(&self, out: &mut Vec<u8>) {
        let time = (self.time * 1000.0) as i64;
        for (kind, name, value) in self.sets() {
            escape(&self.plugin, &[',', ' '], out);
            for (tag, text) in [
                ("plugin_instance", &self.plugin_instance),
                ("type", &self.r#type),
                ("type_instance", &self.type_instance),
                ("host", &self.host),
                ("dstype", kind),
                ("dsname", name),
            ] {
                let _ = write!(out, ",{tag}=");
                escape(text, &[',', ' '], out);
            }
            // gollum ends each point with a backslash and an n.
            let _ = write!(out, " value={value:.6} {time}\\n");
        }
    }
}
