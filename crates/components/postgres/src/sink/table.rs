//! The table as the server's catalogue describes it.

use thalweg_engine::Error;

use super::{Mode, OnConflict, PostgresSink};
use crate::connection::Connection;
use crate::encode::Wanted;
use crate::failure::{Failure, Moment};
use crate::kind::Kind;
use crate::sql::{TableName, identifier, identifiers, literal};

/// The temporary table through which rows go that are not copied into the table.
pub(super) const STAGED: &str = "pg_temp.thalweg_staged";

/// The column of the temporary table with the number of the row.
const NUMBER: &str = "thalweg_row_number";

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    /// The name for messages.
    pub(super) shown: String,
    /// The columns that can be stored.
    pub(super) columns: Vec<Wanted>,
    /// The names of columns that the server computes.
    pub(super) generated: Vec<String>,
    /// The columns that find the row to replace, for `upsert`.
    pub(super) key: Vec<String>,
    name: String,
    mode: Mode,
    on_conflict: OnConflict,
    /// True if the server takes a `COPY` into the table: it takes none into most views, and none of a user
    /// for whom row security is active.
    takes_copy: bool,
}

impl Table {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// If there is no such table, or it has not the columns that the options name.
    pub(super) async fn load(
        config: &PostgresSink,
        connection: &Connection,
        moment: Moment,
    ) -> Result<Self, Error> {
        let shown = config.table.clone();
        let name = TableName::new(&shown).quoted();
        let unreadable = |failure: Failure| failure.error(format!("cannot look up `{shown}`"), moment);
        let rows = connection.rows(&columns_query(&name)).await.map_err(unreadable)?;
        if rows.is_empty() {
            let text = format!("there is no table `{shown}`: create it, or correct `table`");
            return Err(match moment {
                Moment::Start => Error::permanent(text),
                Moment::Running => Error::temporary(text),
            });
        }
        let key = match (config.write_mode, config.key.is_empty()) {
            (Mode::Upsert, true) => connection.primary_key(&name).await.map_err(unreadable)?,
            (Mode::Upsert, false) => config.key.to_vec(),
            _ => Vec::new(),
        };
        let is_key = |name: &String| key.contains(name);
        let (mut columns, mut generated, mut takes_copy) = (Vec::new(), Vec::new(), true);
        for row in rows {
            let [Some(name), Some(oid), Some(class), Some(shown), Some(made), Some(refuses_copy)] = &row[..]
            else {
                continue;
            };
            takes_copy &= refuses_copy != "true";
            if made == "always" || (made == "identity" && config.write_mode == Mode::Upsert && !is_key(name))
            {
                generated.push(name.clone());
                continue;
            }
            let kind = match class.as_str() {
                // The binary form of an enum is its label.
                "e" => Some(Kind::Text),
                _ => oid.parse().ok().and_then(Kind::of_oid),
            };
            columns.push(Wanted { name: name.clone(), shown: shown.clone(), kind });
        }
        let (mode, on_conflict) = (config.write_mode, config.on_conflict);
        let table = Self { shown, columns, generated, key, name, mode, on_conflict, takes_copy };
        table.check(config)?;
        Ok(table)
    }

    fn check(&self, config: &PostgresSink) -> Result<(), Error> {
        let shown = &self.shown;
        if self.mode == Mode::Upsert && self.key.is_empty() {
            let message =
                format!("`{shown}` has no primary key: name the columns of a unique index in `key`");
            return Err(Error::permanent(message));
        }
        let has = |name: &&String| self.columns.iter().any(|column| column.name == **name);
        match self.key.iter().chain(config.columns.keys()).find(|name| !has(name)) {
            Some(name) => {
                Err(Error::permanent(format!("`{shown}` has no column `{name}` that can be stored")))
            }
            None => Ok(()),
        }
    }

    /// True if rows of these columns go through the temporary table.
    pub(super) fn is_staged(&self, columns: &[usize]) -> bool {
        self.mode != Mode::Copy
            || !self.takes_copy
            || self.chosen(columns).any(|column| column.kind.is_none())
    }

    fn chosen<'a>(&'a self, columns: &'a [usize]) -> impl Iterator<Item = &'a Wanted> {
        columns.iter().filter_map(|number| self.columns.get(*number))
    }

    /// Returns the statement that creates the temporary table.
    pub(super) fn staging(&self) -> String {
        let column = |column: &Wanted| {
            let kind = column.kind.map_or("text", |_| column.shown.as_str());
            format!(", {} {kind}", identifier(&column.name))
        };
        let columns: String = self.columns.iter().map(column).collect();
        format!(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {STAGED} ({NUMBER} bigint{columns}) ON COMMIT DELETE ROWS"
        )
    }

    /// Returns the statement that takes rows of these columns.
    pub(super) fn copy(&self, columns: &[usize]) -> String {
        let names = identifiers(self.chosen(columns).map(|column| column.name.as_str()));
        match self.is_staged(columns) {
            true => format!("COPY {STAGED} ({NUMBER}, {names}) FROM STDIN (FORMAT binary)"),
            false => format!("COPY {} ({names}) FROM STDIN (FORMAT binary)", self.name),
        }
    }

    /// Returns the statements that move rows of these columns out of the temporary table.
    pub(super) fn insert(&self, columns: &[usize]) -> Option<String> {
        if !self.is_staged(columns) {
            return None;
        }
        let names = identifiers(self.chosen(columns).map(|column| column.name.as_str()));
        let value = |column: &Wanted| match column.kind {
            Some(_) => format!("s.{}", identifier(&column.name)),
            None => format!("s.{}::{}", identifier(&column.name), column.shown),
        };
        let values = self.chosen(columns).map(value).collect::<Vec<_>>().join(", ");
        let key = |prefix: &str| {
            let names = self.key.iter().map(|name| format!("{prefix}{}", identifier(name)));
            names.collect::<Vec<_>>().join(", ")
        };
        let (distinct, order) = match self.mode {
            // Of several messages with the same key, the last counts.
            Mode::Upsert => {
                (format!("DISTINCT ON ({}) ", key("s.")), format!("{}, s.{NUMBER} DESC", key("s.")))
            }
            _ => (String::new(), format!("s.{NUMBER}")),
        };
        let conflict = match (self.mode, self.on_conflict) {
            (Mode::Upsert, _) => {
                let others = self.chosen(columns).filter(|column| !self.key.contains(&column.name));
                let set = others.map(|column| identifier(&column.name));
                let set = set.map(|name| format!("{name} = EXCLUDED.{name}")).collect::<Vec<_>>().join(", ");
                match set.is_empty() {
                    true => format!(" ON CONFLICT ({}) DO NOTHING", key("")),
                    false => format!(" ON CONFLICT ({}) DO UPDATE SET {set}", key("")),
                }
            }
            (_, OnConflict::Nothing) => " ON CONFLICT DO NOTHING".to_owned(),
            _ => String::new(),
        };
        Some(format!(
            "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE SELECT {distinct}{values} FROM {STAGED} AS s \
             ORDER BY {order}{conflict}; DELETE FROM {STAGED}",
            self.name
        ))
    }
}

/// Returns the query for the columns of a table. A column of a domain has the type that the domain is of: the
/// temporary table could not leave a column out whose domain is `NOT NULL`. The server makes some values:
/// those of a column that is `always` computed can never be given, and those of an `identity` can be
/// inserted, but not replaced. The last value says whether the server takes no `COPY`.
fn columns_query(table: &str) -> String {
    format!(
        "SELECT a.attname, COALESCE(NULLIF(t.typbasetype, 0), t.oid)::text, t.typtype::text, \
         CASE t.typtype WHEN 'd' THEN pg_catalog.format_type(t.typbasetype, t.typtypmod) \
         ELSE pg_catalog.format_type(a.atttypid, a.atttypmod) END, CASE WHEN a.attgenerated <> '' THEN 'always' WHEN a.attidentity = 'a' THEN 'identity' ELSE 'never' END, \
         (c.relkind = 'v' OR pg_catalog.row_security_active(c.oid))::text \
         FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
         JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
         WHERE a.attrelid = pg_catalog.to_regclass({}) AND a.attnum > 0 AND NOT a.attisdropped \
         ORDER BY a.attnum",
        literal(table)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(mode: Mode, on_conflict: OnConflict) -> Table {
        let column =
            |name: &str, shown: &str, kind| Wanted { name: name.to_owned(), shown: shown.to_owned(), kind };
        Table {
            shown: "t".to_owned(),
            columns: vec![column("id", "integer", Some(Kind::Int4)), column("ip", "inet", None)],
            generated: Vec::new(),
            key: if mode == Mode::Upsert { vec!["id".to_owned()] } else { Vec::new() },
            name: "\"t\"".to_owned(),
            mode,
            on_conflict,
            takes_copy: true,
        }
    }

    #[test]
    fn rows_are_copied_into_the_table_if_all_types_are_known() {
        let copied = table(Mode::Copy, OnConflict::Refuse);
        assert_eq!(copied.copy(&[0]), "COPY \"t\" (\"id\") FROM STDIN (FORMAT binary)");
        assert_eq!(copied.insert(&[0]), None);
        let inserted = Table { takes_copy: false, ..table(Mode::Copy, OnConflict::Refuse) };
        assert!(inserted.copy(&[0]).starts_with("COPY pg_temp.thalweg_staged "));
        assert!(inserted.insert(&[0]).unwrap().starts_with("INSERT INTO \"t\" (\"id\")"));
        assert_eq!(
            copied.copy(&[0, 1]),
            "COPY pg_temp.thalweg_staged (thalweg_row_number, \"id\", \"ip\") FROM STDIN (FORMAT binary)"
        );
        assert_eq!(
            copied.insert(&[0, 1]).unwrap(),
            "INSERT INTO \"t\" (\"id\", \"ip\") OVERRIDING SYSTEM VALUE SELECT s.\"id\", s.\"ip\"::inet \
             FROM pg_temp.thalweg_staged AS s ORDER BY s.thalweg_row_number; DELETE FROM pg_temp.thalweg_staged"
        );
        assert_eq!(
            copied.staging(),
            "CREATE TEMPORARY TABLE IF NOT EXISTS pg_temp.thalweg_staged (thalweg_row_number bigint, \
             \"id\" integer, \"ip\" text) ON COMMIT DELETE ROWS"
        );
    }

    #[test]
    fn the_last_row_of_a_key_replaces_the_one_that_is_there() {
        let insert = table(Mode::Upsert, OnConflict::Refuse).insert(&[0, 1]).unwrap();
        assert!(insert.contains(
            "SELECT DISTINCT ON (s.\"id\") s.\"id\", s.\"ip\"::inet FROM pg_temp.thalweg_staged AS s \
             ORDER BY s.\"id\", s.thalweg_row_number DESC \
             ON CONFLICT (\"id\") DO UPDATE SET \"ip\" = EXCLUDED.\"ip\";"
        ));
        let only_key = table(Mode::Upsert, OnConflict::Refuse).insert(&[0]).unwrap();
        assert!(only_key.contains("ON CONFLICT (\"id\") DO NOTHING;"), "{only_key}");
        let nothing = table(Mode::Insert, OnConflict::Nothing).insert(&[0]).unwrap();
        assert!(nothing.contains("ORDER BY s.thalweg_row_number ON CONFLICT DO NOTHING;"), "{nothing}");
    }
}
