//! The columns, and the statement that reads them.

use std::collections::HashSet;

use thalweg_engine::Error;
use tokio_postgres::types::Kind as TypeKind;

use super::{PostgresSource, statement};
use crate::connection::Connection;
use crate::decode::Column;
use crate::failure::{Failure, Moment};
use crate::kind::Kind;
use crate::sql::{TableName, identifier, identifiers, literal};

/// A column in whose order rows are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) name: String,
    /// None for a type that is not known here.
    pub(super) kind: Option<Kind>,
}

impl Order {
    /// Returns the largest value of a type that has one beyond all that grow.
    fn end(&self) -> Option<&'static str> {
        match self.kind? {
            Kind::Date | Kind::Timestamp | Kind::TimestampTz => Some("infinity"),
            // NaN is larger than infinity.
            Kind::Float4 | Kind::Float8 => Some("Infinity"),
            Kind::Numeric => Some("NaN"),
            _ => None,
        }
    }
}

/// The columns to read, and their order.
#[derive(Debug)]
pub(super) struct Select {
    pub(super) columns: Vec<Column>,
    /// The number of the column that becomes the payload.
    pub(super) payload: Option<usize>,
    pub(super) key: Option<Order>,
    pub(super) cursor: Option<Order>,
    /// The name for messages, and for `meta.path`.
    pub(super) path: String,
    /// The expressions of the columns, between commas.
    expressions: String,
    /// The table, or the query in parentheses.
    from: String,
    /// Of a row with a cursor: how long it waits, as an interval.
    delay: Option<String>,
}

/// The place of a row in the order of reading, as texts of the server.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Place {
    pub(super) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
}

impl Select {
    /// Asks the server for the columns of the table or query.
    ///
    /// # Errors
    /// If the server does not have what the options name.
    pub(super) async fn new(config: &PostgresSource, connection: &Connection) -> Result<Self, Error> {
        let (path, from) = match (&config.table, &config.query) {
            (Some(table), _) => (table.clone(), TableName::new(table).quoted()),
            (None, query) => {
                let text = query.as_deref().unwrap_or_default();
                // The query may end with a comment.
                ("query".to_owned(), format!("({}\n)", statement::query(text).unwrap_or(text)))
            }
        };
        let unreadable = |failure: Failure| failure.error(format!("cannot read `{path}`"), Moment::Start);
        let names = match config.columns.is_empty() {
            true => "*".to_owned(),
            false => identifiers(config.columns.iter().map(String::as_str)),
        };
        let all = format!("SELECT {names} FROM {from} AS q");
        let described = connection.prepare(&all).await.map_err(unreadable)?;
        let described: Vec<(Column, String)> = described.columns().iter().map(column).collect();
        let (columns, expressions): (Vec<Column>, Vec<String>) = described.into_iter().unzip();
        if let Some(name) = repeated(&columns) {
            let message = format!("`{path}` has two columns `{name}`: give one another name with `AS`");
            return Err(Error::permanent(message));
        }
        let payload = payload(config, &columns, &path)?;
        let (key, cursor) = orders(config, connection, &from, &path).await?;
        let delay = config.delay.map(|delay| format!("{} milliseconds", delay.duration().as_millis()));
        let is_point =
            |order: &Order| order.kind.is_some_and(|kind| kind.is_time_point() || kind == Kind::Date);
        if delay.is_some() && !cursor.as_ref().is_some_and(is_point) {
            return Err(Error::permanent("`delay` needs a `cursor` that is a date or a timestamp"));
        }
        Ok(Self { columns, payload, key, cursor, path, expressions: expressions.join(", "), from, delay })
    }

    /// The number of values behind the columns of a row: its place.
    pub(super) fn hidden(&self) -> usize {
        usize::from(self.key.is_some()) + usize::from(self.cursor.is_some())
    }

    /// Returns what names the order of reading: another table or other columns have another, in which the
    /// places of this one mean nothing.
    pub(super) fn order(&self) -> String {
        let columns = self.cursor.iter().chain(&self.key).map(|order| order.name.as_str());
        format!("{}({})", self.from, identifiers(columns))
    }

    /// True if keys are positions: whole numbers, in whose order rows are read.
    pub(super) fn has_positions(&self) -> bool {
        self.cursor.is_none() && self.key.as_ref().and_then(|key| key.kind).is_some_and(Kind::is_integer)
    }

    /// Returns the table or query as SQL has it.
    pub(super) fn table(&self) -> &str {
        &self.from
    }

    /// Returns the statement that reads the rows behind `after`, up to the key `until`.
    pub(super) fn copy(&self, after: Option<&Place>, until: Option<i64>) -> String {
        let column = |order: &Order| format!("q.{}", identifier(&order.name));
        let (key, cursor) = (self.key.as_ref().map(column), self.cursor.as_ref().map(column));
        let hidden = key.iter().chain(&cursor).map(|column| format!("{column}::text"));
        let selected = std::iter::once(self.expressions.clone()).filter(|all| !all.is_empty()).chain(hidden);
        let selected = selected.collect::<Vec<_>>().join(", ");
        let mut conditions: Vec<String> =
            key.iter().chain(&cursor).map(|column| format!("{column} IS NOT NULL")).collect();
        if let (Some(cursor), Some(end)) = (&cursor, self.cursor.as_ref().and_then(Order::end)) {
            // Behind such a row, no other would ever come.
            conditions.push(format!("{cursor} < {}", literal(end)));
        }
        match (&key, &cursor, after) {
            (Some(key), Some(cursor), Some(Place { key: last, cursor: Some(at) })) => {
                conditions.push(format!("({cursor}, {key}) > ({}, {})", literal(at), literal(last)));
            }
            (Some(key), None, Some(Place { key: last, cursor: None })) => {
                conditions.push(format!("{key} > {}", literal(last)));
            }
            _ => {}
        }
        if let (Some(key), Some(until)) = (&key, until) {
            conditions.push(format!("{key} <= {until}"));
        }
        if let (Some(cursor), Some(delay)) = (&cursor, &self.delay) {
            conditions.push(format!("{cursor} <= now() - interval {}", literal(delay)));
        }
        let order = cursor.into_iter().chain(key).collect::<Vec<_>>().join(", ");
        let mut statement = format!("SELECT {selected} FROM {} AS q", self.from);
        if !conditions.is_empty() {
            statement.push_str(&format!(" WHERE {} ORDER BY {order}", conditions.join(" AND ")));
        }
        format!("COPY ({statement}) TO STDOUT (FORMAT binary)")
    }
}

/// Returns a column, and the expression that reads it.
fn column(described: &tokio_postgres::Column) -> (Column, String) {
    let name = described.name().to_owned();
    let expression = format!("q.{}", identifier(&name));
    let (kind, digits, expression) = match Kind::of_oid(described.type_().oid()) {
        Some(Kind::Numeric) => match digits(described.type_modifier()) {
            Some(digits) => (Kind::Numeric, Some(digits), expression),
            None => (Kind::Text, None, format!("{expression}::text")),
        },
        Some(kind) => (kind, None, expression),
        None => match described.type_().kind() {
            TypeKind::Array(_) | TypeKind::Composite(_) => {
                (Kind::Json, None, format!("to_json({expression})"))
            }
            _ => (Kind::Text, None, format!("{expression}::text")),
        },
    };
    (Column { name, kind, digits }, expression)
}

/// Returns the digits of a `numeric`, and those after the point, if a decimal of 128 bits has them. The
/// modifier of the type is the number of digits in the upper 16 bits, and the scale in the lower 11, plus 4.
fn digits(modifier: i32) -> Option<(u8, u8)> {
    let value = modifier.checked_sub(4).filter(|value| *value >= 0)?;
    let precision =
        u8::try_from((value >> 16) & 0xffff).ok().filter(|precision| (1..=38).contains(precision))?;
    let scale = u8::try_from(value & 0x7ff).ok().filter(|scale| *scale <= precision)?;
    Some((precision, scale))
}

fn repeated(columns: &[Column]) -> Option<&str> {
    let mut seen = HashSet::new();
    columns.iter().map(|column| column.name.as_str()).find(|name| !seen.insert(*name))
}

fn payload(config: &PostgresSource, columns: &[Column], path: &str) -> Result<Option<usize>, Error> {
    let Some(name) = &config.payload else { return Ok(None) };
    let Some(number) = columns.iter().position(|column| column.name == *name) else {
        return Err(Error::permanent(format!("`payload`: `{path}` has no column `{name}`")));
    };
    match columns.get(number).map(|column| column.kind) {
        Some(Kind::Text | Kind::Bytea | Kind::Json | Kind::Jsonb) => Ok(Some(number)),
        _ => {
            let message = format!("`payload`: the column `{name}` is no text, no `bytea` and no JSON");
            Err(Error::permanent(message))
        }
    }
}

/// Returns the columns in whose order rows are read: the key, and the cursor.
async fn orders(
    config: &PostgresSource,
    connection: &Connection,
    from: &str,
    path: &str,
) -> Result<(Option<Order>, Option<Order>), Error> {
    if config.table.is_none() {
        return Ok((None, None));
    }
    let unreadable = |failure: Failure| failure.error(format!("cannot read `{path}`"), Moment::Start);
    let key = match &config.key {
        Some(key) => Some(key.clone()),
        None => {
            let mut key = connection.primary_key(from).await.map_err(unreadable)?;
            // A view has none.
            key.pop().filter(|_| key.is_empty())
        }
    };
    let Some(key) = key else {
        return match config.cursor.is_some() || config.partitions > 1 {
            true => Err(Error::permanent(format!(
                "`{path}` has no primary key of one column: name a unique column in `key`"
            ))),
            false => Ok((None, None)),
        };
    };
    let names: Vec<&str> = std::iter::once(key.as_str()).chain(config.cursor.as_deref()).collect();
    let statement = format!("SELECT {} FROM {from} AS q", identifiers(names.iter().copied()));
    let described = connection.prepare(&statement).await.map_err(unreadable)?;
    let kinds = described.columns().iter().map(|column| Kind::of_oid(column.type_().oid()));
    let mut orders = names.iter().zip(kinds).map(|(name, kind)| Order { name: (*name).to_owned(), kind });
    let (key, cursor) = (orders.next(), orders.next());
    let is_whole = key.as_ref().and_then(|key| key.kind).is_some_and(Kind::is_integer);
    if config.partitions > 1 && !is_whole {
        return Err(Error::permanent(format!(
            "`partitions` needs a `key` of `{path}` that is a whole number"
        )));
    }
    Ok((key, cursor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(cursor: bool) -> Select {
        let order = |name: &str| Order {
            name: name.to_owned(),
            kind: Some(if name == "at" { Kind::TimestampTz } else { Kind::Int8 }),
        };
        Select {
            columns: Vec::new(),
            payload: None,
            key: Some(order("id")),
            cursor: cursor.then(|| order("at")),
            path: "t".to_owned(),
            expressions: "q.\"a\"".to_owned(),
            from: "\"t\"".to_owned(),
            delay: cursor.then(|| "500 milliseconds".to_owned()),
        }
    }

    #[test]
    fn a_statement_continues_behind_the_last_row() {
        let place = |key: &str, cursor: Option<&str>| Place {
            key: key.to_owned(),
            cursor: cursor.map(str::to_owned),
        };
        assert_eq!(
            select(false).copy(None, Some(9)),
            "COPY (SELECT q.\"a\", q.\"id\"::text FROM \"t\" AS q WHERE q.\"id\" IS NOT NULL AND q.\"id\" <= 9 \
             ORDER BY q.\"id\") TO STDOUT (FORMAT binary)"
        );
        assert_eq!(
            select(true).copy(Some(&place("o'k", Some("2"))), None),
            "COPY (SELECT q.\"a\", q.\"id\"::text, q.\"at\"::text FROM \"t\" AS q WHERE q.\"id\" IS NOT NULL \
             AND q.\"at\" IS NOT NULL AND q.\"at\" < E'infinity' AND (q.\"at\", q.\"id\") > (E'2', E'o''k') \
             AND q.\"at\" <= now() - interval E'500 milliseconds' ORDER BY q.\"at\", q.\"id\") \
             TO STDOUT (FORMAT binary)"
        );
    }

    #[test]
    fn a_place_in_another_order_is_not_continued() {
        let of_cursor = Place { key: "7".to_owned(), cursor: Some("2".to_owned()) };
        let of_key = Place { key: "7".to_owned(), cursor: None };
        assert_eq!(select(false).copy(Some(&of_cursor), None), select(false).copy(None, None));
        assert_eq!(select(true).copy(Some(&of_key), None), select(true).copy(None, None));
        assert_eq!(select(false).order(), "\"t\"(\"id\")");
        assert_eq!(select(true).order(), "\"t\"(\"at\", \"id\")");
    }

    #[test]
    fn the_modifier_of_a_number_has_its_digits() {
        // numeric(10, 2), numeric(39), numeric, numeric(3, 5), numeric(5, -2)
        for (modifier, expected) in [
            ((10 << 16 | 2) + 4, Some((10, 2))),
            ((39 << 16) + 4, None),
            (-1, None),
            ((3 << 16 | 5) + 4, None),
            ((5 << 16 | 0x7fe) + 4, None),
        ] {
            assert_eq!(digits(modifier), expected, "{modifier}");
        }
    }
}
