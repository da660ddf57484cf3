//! Reads schemas.
//!
//! A schema is a graph: named types may occur several times, also within themselves. Types are kept in one
//! list and refer to each other by index. The Parsing Canonical Form is written on the way, because the
//! fingerprint of a schema is that of this text.
//!
//! A logical type that is unknown, or does not fit its type, is ignored, as the specification asks.

use std::collections::{HashMap, HashSet};

use arrow_schema::TimeUnit;
use serde_json::{Map, Value};

use super::fingerprint::fingerprint;
use super::logical::Decimal;
use crate::columns::shortened;
use crate::json::{key, write_text};

/// The maximum size of a schema, in bytes, and of its parts: a container brings its own schema.
const LONGEST: usize = 1 << 20;
const MOST_TYPES: usize = 1 << 16;
const MOST_FIELDS: usize = 4096;
/// The maximum size of a full name, and of the schema with all names in full, in bytes. A short name may
/// stand for a long one at each of its places.
const LONGEST_NAME: usize = 1 << 10;
const LONGEST_CANONICAL: usize = 8 << 20;
/// The maximum precision of a decimal in Arrow.
const MOST_DIGITS: u64 = 76;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    /// With the size in bytes.
    Fixed(usize),
    /// With the symbols.
    Enum(Vec<Box<str>>),
    /// With the type of the items.
    Array(usize),
    /// With the type of the values.
    Map(usize),
    /// With the types of the branches.
    Union(Vec<usize>),
    Record(Vec<RecordField>),
    Decimal(Decimal),
    Date,
    TimeMillis,
    TimeMicros,
    /// A local time has no time zone.
    Timestamp {
        unit: TimeUnit,
        is_local: bool,
    },
    /// A UUID of 16 bytes.
    Uuid,
    Duration,
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordField {
    pub(super) name: Box<str>,
    /// The name as the key of a JSON object, with its colon.
    pub(super) key: Box<[u8]>,
    /// The index of its type.
    pub(super) node: usize,
}

/// A schema.
#[derive(Debug, Clone)]
pub struct Schema {
    nodes: Vec<Node>,
    root: usize,
    fingerprint: u64,
}

impl Schema {
    /// Reads a schema from its JSON text.
    ///
    /// # Errors
    /// The mistake, as a part of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("it is longer than {} MiB", LONGEST >> 20));
        }
        let json: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let mut parser = Parser::default();
        let root = parser.any(&json, "")?;
        let Parser { nodes, canonical, .. } = parser;
        Ok(Self { nodes, root, fingerprint: fingerprint(&canonical) })
    }

    /// Returns the fingerprint (CRC-64-AVRO) of the schema.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns a type.
    pub(super) fn node(&self, index: usize) -> &Node {
        static NULL: Node = Node::Null;
        self.nodes.get(index).unwrap_or(&NULL)
    }

    /// Returns the names and types of the columns: the fields of the record, or else the one column `value`.
    pub(super) fn columns(&self) -> Vec<(Box<str>, usize)> {
        match self.node(self.root) {
            Node::Record(fields) => fields.iter().map(|field| (field.name.clone(), field.node)).collect(),
            _ => vec![("value".into(), self.root)],
        }
    }
}

/// Reads the types of a schema.
#[derive(Default)]
struct Parser {
    nodes: Vec<Node>,
    /// The named types, by their full names.
    names: HashMap<String, usize>,
    /// The Parsing Canonical Form.
    canonical: Vec<u8>,
}

impl Parser {
    /// Reads a type, within a namespace.
    fn any(&mut self, json: &Value, namespace: &str) -> Result<usize, String> {
        if self.canonical.len() > LONGEST_CANONICAL {
            return Err(format!("with all names in full it is longer than {} MiB", LONGEST_CANONICAL >> 20));
        }
        match json {
            Value::String(name) => self.named(name, None, namespace),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(members) => self.object(members, namespace),
            other => Err(format!("`{}` is not a type", shortened(&other.to_string()))),
        }
    }

    fn add(&mut self, node: Node) -> Result<usize, String> {
        if self.nodes.len() >= MOST_TYPES {
            return Err(format!("it has more than {MOST_TYPES} types"));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn set(&mut self, index: usize, node: Node) {
        if let Some(known) = self.nodes.get_mut(index) {
            *known = node;
        }
    }

    fn object(&mut self, members: &Map<String, Value>, namespace: &str) -> Result<usize, String> {
        match members.get("type") {
            Some(Value::String(kind)) => match kind.as_str() {
                "record" | "error" => self.record(kind, members, namespace),
                "enum" => self.enumeration(members, namespace),
                "fixed" => self.fixed(members, namespace),
                "array" => self.container(members, "items", namespace),
                "map" => self.container(members, "values", namespace),
                name => self.named(name, Some(members), namespace),
            },
            Some(other) => self.any(other, namespace),
            None => Err("a type has no `type`".to_owned()),
        }
    }

    /// Reads a primitive type, or the name of a type that was defined before.
    fn named(
        &mut self,
        name: &str,
        members: Option<&Map<String, Value>>,
        namespace: &str,
    ) -> Result<usize, String> {
        if let Some(node) = primitive(name) {
            write_text(name, &mut self.canonical);
            let logical = members.and_then(|members| logical(&node, members));
            return self.add(logical.unwrap_or(node));
        }
        let full = full_name(name, namespace);
        let (full, &known) = self
            .names
            .get_key_value(&full)
            .or_else(|| self.names.get_key_value(name))
            .ok_or_else(|| format!("there is no type `{}`", shortened(name)))?;
        write_text(full, &mut self.canonical);
        Ok(known)
    }

    fn union(&mut self, branches: &[Value], namespace: &str) -> Result<usize, String> {
        if branches.is_empty() {
            return Err("a union has no branches".to_owned());
        }
        let mut nodes = Vec::with_capacity(branches.len());
        for branch in branches {
            self.canonical.push(if nodes.is_empty() { b'[' } else { b',' });
            let node = self.any(branch, namespace)?;
            if matches!(self.nodes.get(node), Some(Node::Union(_))) {
                return Err("a branch of a union is a union".to_owned());
            }
            nodes.push(node);
        }
        self.canonical.push(b']');
        self.add(Node::Union(nodes))
    }

    fn container(
        &mut self,
        members: &Map<String, Value>,
        of: &str,
        namespace: &str,
    ) -> Result<usize, String> {
        let kind = if of == "items" { "array" } else { "map" };
        let inner = members.get(of).ok_or_else(|| format!("a type `{kind}` has no `{of}`"))?;
        self.write(&format!(r#"{{"type":"{kind}","{of}":"#));
        let inner = self.any(inner, namespace)?;
        self.write("}");
        self.add(if of == "items" { Node::Array(inner) } else { Node::Map(inner) })
    }

    fn record(&mut self, kind: &str, members: &Map<String, Value>, namespace: &str) -> Result<usize, String> {
        let (name, namespace) = self.define(members, namespace)?;
        let node = self.add(Node::Null)?;
        self.names.insert(name.clone(), node);
        let fields = list(members, "fields", &name)?;
        if fields.len() > MOST_FIELDS {
            return Err(format!("the record `{}` has more than {MOST_FIELDS} fields", shortened(&name)));
        }
        self.begin(&name, kind);
        self.write(",\"fields\":[");
        let mut known = HashSet::new();
        let mut all = Vec::with_capacity(fields.len());
        for field in fields {
            let text = field.get("name").and_then(Value::as_str);
            let text = text.ok_or_else(|| format!("a field of `{}` has no `name`", shortened(&name)))?;
            if !known.insert(text) {
                return Err(format!(
                    "the field `{}` of `{}` is there twice",
                    shortened(text),
                    shortened(&name)
                ));
            }
            let inner = field.get("type").ok_or_else(|| format!("`{}` has no `type`", shortened(text)))?;
            self.write(if all.is_empty() { "{\"name\":" } else { ",{\"name\":" });
            write_text(text, &mut self.canonical);
            self.write(",\"type\":");
            let inner = self.any(inner, &namespace)?;
            self.write("}");
            all.push(RecordField { name: text.into(), key: key(text).into(), node: inner });
        }
        self.write("]}");
        self.set(node, Node::Record(all));
        Ok(node)
    }

    fn enumeration(&mut self, members: &Map<String, Value>, namespace: &str) -> Result<usize, String> {
        let (name, _) = self.define(members, namespace)?;
        let symbols = list(members, "symbols", &name)?.iter();
        let symbols: Option<Vec<Box<str>>> = symbols.map(|symbol| symbol.as_str().map(Into::into)).collect();
        let symbols = symbols.ok_or_else(|| format!("a symbol of `{}` is not a text", shortened(&name)))?;
        self.begin(&name, "enum");
        self.write(",\"symbols\":[");
        for (number, symbol) in symbols.iter().enumerate() {
            if number > 0 {
                self.write(",");
            }
            write_text(symbol, &mut self.canonical);
        }
        self.write("]}");
        let node = self.add(Node::Enum(symbols))?;
        self.names.insert(name, node);
        Ok(node)
    }

    fn fixed(&mut self, members: &Map<String, Value>, namespace: &str) -> Result<usize, String> {
        let (name, _) = self.define(members, namespace)?;
        let size = members.get("size").and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        let size =
            size.ok_or_else(|| format!("the `size` of `{}` is not a number of bytes", shortened(&name)))?;
        self.begin(&name, "fixed");
        self.write(&format!(",\"size\":{size}}}"));
        let node = Node::Fixed(size);
        let node = self.add(logical(&node, members).unwrap_or(node))?;
        self.names.insert(name, node);
        Ok(node)
    }

    /// Returns the full name of a type that is being defined, and the namespace of its parts.
    fn define(&self, members: &Map<String, Value>, namespace: &str) -> Result<(String, String), String> {
        let name = members.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or("a type `record`, `enum` or `fixed` has no `name`")?;
        let namespace = members.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let full = full_name(name, namespace);
        if full.len() > LONGEST_NAME {
            return Err(format!("the name `{}` is longer than {LONGEST_NAME} bytes", shortened(&full)));
        }
        if self.names.contains_key(&full) || primitive(&full).is_some() {
            return Err(format!("the name `{}` is taken", shortened(&full)));
        }
        let namespace = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        Ok((full, namespace))
    }

    fn write(&mut self, text: &str) {
        self.canonical.extend_from_slice(text.as_bytes());
    }

    /// Writes the first members of a named type.
    fn begin(&mut self, name: &str, kind: &str) {
        self.write("{\"name\":");
        write_text(name, &mut self.canonical);
        self.write(&format!(",\"type\":\"{kind}\""));
    }
}

/// Returns a name with its namespace. A name with a dot has one already.
fn full_name(name: &str, namespace: &str) -> String {
    if namespace.is_empty() || name.contains('.') { name.to_owned() } else { format!("{namespace}.{name}") }
}

fn list<'a>(members: &'a Map<String, Value>, key: &str, name: &str) -> Result<&'a Vec<Value>, String> {
    let found = members.get(key).and_then(Value::as_array);
    found.ok_or_else(|| format!("the type `{}` has no list `{key}`", shortened(name)))
}

fn primitive(name: &str) -> Option<Node> {
    Some(match name {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "int" => Node::Int,
        "long" => Node::Long,
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes,
        "string" => Node::String,
        _ => return None,
    })
}

/// Returns the logical type that the members give to a type, if it is one that is known and fits.
fn logical(node: &Node, members: &Map<String, Value>) -> Option<Node> {
    let name = members.get("logicalType")?.as_str()?;
    let timestamp = |unit, is_local| Node::Timestamp { unit, is_local };
    Some(match (node, name) {
        (Node::Int, "date") => Node::Date,
        (Node::Int, "time-millis") => Node::TimeMillis,
        (Node::Long, "time-micros") => Node::TimeMicros,
        (Node::Long, "timestamp-millis") => timestamp(TimeUnit::Millisecond, false),
        (Node::Long, "timestamp-micros") => timestamp(TimeUnit::Microsecond, false),
        (Node::Long, "timestamp-nanos") => timestamp(TimeUnit::Nanosecond, false),
        (Node::Long, "local-timestamp-millis") => timestamp(TimeUnit::Millisecond, true),
        (Node::Long, "local-timestamp-micros") => timestamp(TimeUnit::Microsecond, true),
        (Node::Long, "local-timestamp-nanos") => timestamp(TimeUnit::Nanosecond, true),
        (Node::Fixed(16), "uuid") => Node::Uuid,
        (Node::Fixed(12), "duration") => Node::Duration,
        (Node::Bytes, "decimal") => Node::Decimal(decimal(None, members)?),
        (Node::Fixed(size), "decimal") => Node::Decimal(decimal(Some(*size), members)?),
        _ => return None,
    })
}

/// Returns a decimal if Arrow has its precision. Otherwise the values stay bytes.
fn decimal(size: Option<usize>, members: &Map<String, Value>) -> Option<Decimal> {
    let precision = members.get("precision")?.as_u64().filter(|digits| (1..=MOST_DIGITS).contains(digits))?;
    let scale = match members.get("scale") {
        Some(scale) => scale.as_u64().filter(|scale| *scale <= precision)?,
        None => 0,
    };
    Some(Decimal { size, precision: u8::try_from(precision).ok()?, scale: i8::try_from(scale).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the Parsing Canonical Form of a schema.
    fn canonical(text: &str) -> String {
        let mut parser = Parser::default();
        parser.any(&serde_json::from_str(text).unwrap(), "").unwrap();
        String::from_utf8(parser.canonical).unwrap()
    }

    #[test]
    fn the_canonical_form_has_full_names_and_only_the_members_that_matter() {
        let cases = [
            (r#"{"type": "int", "logicalType": "date"}"#, r#""int""#),
            (r#"[ "null", {"type":"string"} ]"#, r#"["null","string"]"#),
            (r#"{"items":{"type":"long"},"type":"array"}"#, r#"{"type":"array","items":"long"}"#),
            (r#"{"values":"bytes","type":"map"}"#, r#"{"type":"map","values":"bytes"}"#),
            (
                r#"{"type":"fixed","size":16,"name":"F","namespace":"a.b","doc":"x"}"#,
                r#"{"name":"a.b.F","type":"fixed","size":16}"#,
            ),
            (
                r#"{"type":"enum","name":"x.E","namespace":"y","symbols":["A","B"],"default":"A"}"#,
                r#"{"name":"x.E","type":"enum","symbols":["A","B"]}"#,
            ),
            (
                r#"{"type":"record","name":"R","namespace":"n","fields":[
                    {"name":"a","type":["null","R"],"default":null},
                    {"name":"b","type":{"type":"enum","name":"E","symbols":[]},"aliases":["c"]},
                    {"name":"d","type":"n.E"}]}"#,
                r#"{"name":"n.R","type":"record","fields":[{"name":"a","type":["null","n.R"]},{"name":"b","type":{"name":"n.E","type":"enum","symbols":[]}},{"name":"d","type":"n.E"}]}"#,
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text), expected);
        }
    }

    #[test]
    fn logical_types_that_do_not_fit_are_ignored() {
        let node = |text: &str| {
            let schema = Schema::parse(text).unwrap();
            schema.node(schema.root).clone()
        };
        assert_eq!(node(r#"{"type":"string","logicalType":"uuid"}"#), Node::String);
        assert_eq!(node(r#"{"type":"long","logicalType":"date"}"#), Node::Long);
        assert_eq!(node(r#"{"type":"int","logicalType":"date"}"#), Node::Date);
        assert_eq!(node(r#"{"type":"bytes","logicalType":"decimal","precision":77}"#), Node::Bytes);
        assert_eq!(node(r#"{"type":"bytes","logicalType":"decimal","precision":2,"scale":3}"#), Node::Bytes);
        let fixed = r#"{"type":"fixed","name":"f","size":2,"logicalType":"decimal","precision":4,"scale":1}"#;
        assert_eq!(node(fixed), Node::Decimal(Decimal { size: Some(2), precision: 4, scale: 1 }));
    }

    #[test]
    fn a_mistake_is_named() {
        let cases = [
            ("{", "it is not JSON: EOF while parsing an object at line 1 column 1"),
            ("1", "`1` is not a type"),
            ("\"strin\"", "there is no type `strin`"),
            ("{}", "a type has no `type`"),
            ("[]", "a union has no branches"),
            (r#"["int", ["null"]]"#, "a branch of a union is a union"),
            (r#"{"type":"array"}"#, "a type `array` has no `items`"),
            (r#"{"type":"record","fields":[]}"#, "a type `record`, `enum` or `fixed` has no `name`"),
            (r#"{"type":"record","name":"r"}"#, "the type `r` has no list `fields`"),
            (r#"{"type":"record","name":"int","fields":[]}"#, "the name `int` is taken"),
            (r#"{"type":"record","name":"r","fields":[{}]}"#, "a field of `r` has no `name`"),
            (r#"{"type":"record","name":"r","fields":[{"name":"a"}]}"#, "`a` has no `type`"),
            (
                r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}"#,
                "the field `a` of `r` is there twice",
            ),
            (r#"{"type":"fixed","name":"f","size":-1}"#, "the `size` of `f` is not a number of bytes"),
            (r#"{"type":"enum","name":"e","symbols":[1]}"#, "a symbol of `e` is not a text"),
        ];
        for (text, expected) in cases {
            assert_eq!(Schema::parse(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn short_names_that_stand_for_long_ones_have_a_limit() {
        let schema = |space: usize, count: usize| {
            let branches = ["\"r\""].repeat(count).join(",");
            let space = "n".repeat(space);
            format!(
                r#"{{"type":"record","name":"r","namespace":"{space}","fields":[{{"name":"a","type":[{branches}]}}]}}"#
            )
        };
        assert!(Schema::parse(&schema(1000, 1000)).is_ok());
        let reason = Schema::parse(&schema(1000, 20_000)).unwrap_err();
        assert_eq!(reason, "with all names in full it is longer than 8 MiB");
        let reason = Schema::parse(&schema(1023, 1)).unwrap_err();
        assert_eq!(reason, format!("the name `{}...` is longer than 1024 bytes", "n".repeat(60)));
    }
}
