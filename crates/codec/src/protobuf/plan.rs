//! The columns for a message type.

use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, FieldRef};

use super::DEEPEST;
use super::defaults::Missing;
use super::kind::Kind;
use super::schema::{Field, Form, Label, Schema};
use crate::columns::FieldType;

/// The maximum number of columns if nested messages are flattened: types that use each other can have
/// millions of paths.
const MOST: usize = 4096;

/// The options of [`Protobuf`](super::Protobuf).
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The full name of the message type.
    pub message: String,
    /// True if the fields of nested messages become columns, named with dots.
    pub flatten: bool,
    /// True if missing fields with implicit presence, or with a declared default, are NULL.
    pub without_defaults: bool,
    /// The prefix of the name of each column.
    pub prefix: String,
}

/// The columns for a message type, and the fields that they are made of.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) message: usize,
    /// One node for each field of the message, in the order of the fields.
    pub(super) nodes: Vec<Node>,
    pub(super) columns: Vec<Column>,
}

/// The result of a field.
#[derive(Debug)]
pub(super) enum Node {
    /// The column of this number.
    Column(usize),
    /// The columns of the fields of a nested message.
    Nested { message: usize, nodes: Vec<Node> },
}

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) field: FieldRef,
    pub(super) content: Content,
    /// The value in a message that lacks the field.
    pub(super) missing: Missing,
}

/// How the values of a column are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Values that are no messages.
    Scalar,
    /// Wrapped values, of a message of this type.
    Wrapped(usize),
    /// Messages of this type, as times.
    Time(usize),
    /// Messages of this type, as seconds.
    Seconds(usize),
    /// Other values, as JSON.
    Json,
}

impl Plan {
    /// Plans the columns.
    ///
    /// # Errors
    /// The reason: there is no such message, or it has too many columns.
    pub(super) fn new(schema: &Schema, wanted: &Wanted) -> Result<Self, String> {
        let message = schema.find(&wanted.message)?;
        let mut planner = Planner { schema, wanted, path: Vec::new(), columns: Vec::new() };
        let nodes = planner.nodes(message, &wanted.prefix)?;
        Ok(Self { message, nodes, columns: planner.columns })
    }
}

struct Planner<'s> {
    schema: &'s Schema,
    wanted: &'s Wanted,
    /// The message types from the outermost to the current one.
    path: Vec<usize>,
    columns: Vec<Column>,
}

impl Planner<'_> {
    fn nodes(&mut self, message: usize, prefix: &str) -> Result<Vec<Node>, String> {
        self.path.push(message);
        let schema = self.schema;
        let node = |field: &Field| self.node(field, format!("{prefix}{}", field.name));
        let nodes = schema.message(message).fields.iter().map(node).collect();
        self.path.pop();
        nodes
    }

    fn node(&mut self, field: &Field, name: String) -> Result<Node, String> {
        if let Some(message) = self.flattened(field) {
            let nodes = self.nodes(message, &format!("{name}."))?;
            return Ok(Node::Nested { message, nodes });
        }
        if self.wanted.flatten && self.columns.len() == MOST {
            let name = &self.wanted.message;
            return Err(format!(
                "`{name}` has more than {MOST} fields in nested messages: leave out `flatten`"
            ));
        }
        let column = self.column(field, &name);
        self.columns.push(column);
        Ok(Node::Column(self.columns.len() - 1))
    }

    /// Returns the type of the nested message if its fields become columns. A type within itself does not
    /// end, so its messages stay JSON.
    fn flattened(&self, field: &Field) -> Option<usize> {
        let Kind::Message(message) = field.kind else { return None };
        let about = self.schema.message(message);
        let is_finite = !self.path.contains(&message) && self.path.len() < DEEPEST;
        let is_object =
            field.label == Label::Single && about.form == Form::Object && !about.fields.is_empty();
        (self.wanted.flatten && is_finite && is_object).then_some(message)
    }

    fn column(&self, field: &Field, name: &str) -> Column {
        let (content, kind) = match (field.label, field.kind) {
            (Label::List | Label::Map, kind) => (Content::Json, kind),
            (Label::Single, Kind::Message(message)) => match self.schema.message(message).form {
                Form::Time => (Content::Time(message), field.kind),
                Form::Duration => (Content::Seconds(message), field.kind),
                Form::Wrapper => (Content::Wrapped(message), self.schema.field(message, 0).kind),
                Form::Object | Form::Json(_) => (Content::Json, field.kind),
            },
            (Label::Single, kind) => (Content::Scalar, kind),
        };
        let arrow = match content {
            Content::Scalar | Content::Wrapped(_) => arrow_field(kind, name),
            Content::Time(_) => FieldType::Timestamp.field(name),
            Content::Seconds(_) => FieldType::Float.field(name),
            Content::Json => FieldType::Json.field(name),
        };
        let missing = if self.wanted.without_defaults { Missing::Null } else { field.missing.clone() };
        Column { field: Arc::new(arrow), content, missing }
    }
}

/// Returns the Arrow field of a column of values that are no messages.
fn arrow_field(kind: Kind, name: &str) -> ArrowField {
    match kind {
        Kind::UInt64 | Kind::Fixed64 => ArrowField::new(name, DataType::UInt64, true),
        Kind::Float => ArrowField::new(name, DataType::Float32, true),
        Kind::Bytes => ArrowField::new(name, DataType::BinaryView, true),
        Kind::Double | Kind::JsonNumber => FieldType::Float.field(name),
        Kind::Bool => FieldType::Bool.field(name),
        Kind::Text | Kind::Enum(_) => FieldType::Text.field(name),
        Kind::Message(_) | Kind::JsonNull => FieldType::Json.field(name),
        _ => FieldType::Int.field(name),
    }
}
