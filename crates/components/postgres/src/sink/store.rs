//! One batch, one transaction.
//!
//! If the server refuses a piece because of a row, the piece is divided until the bad rows are alone, behind
//! savepoints of the same transaction. A row that is refused costs about twice as many statements as the
//! binary logarithm of the rows. If [`MOST_ALONE`] rows were refused one by one and none was stored in
//! between, the reason is rarely in single rows: a piece that is refused then is refused as a whole. So the
//! statements of a batch are bounded by the number of its good rows.
//!
//! The server's message names the line of the data, in the language of the server. It is for people, so it is
//! not searched.

use std::collections::HashMap;
use std::iter;
use std::ops::Range;

use bytes::Bytes;
use thalweg_engine::Error;
use tokio_postgres::Statement;

use super::PostgresSink;
use super::rows::Encoded;
use super::table::Table;
use crate::connection::Connection;
use crate::decode::{HEADER, TRAILER};
use crate::failure::{Failure, Meaning, Moment};

/// After this number of rows that were refused one by one, pieces are not divided any more.
const MOST_ALONE: usize = 16;

/// The size of a message with data, in bytes.
const MESSAGE: usize = 256 << 10;

/// The largest number of sets of columns whose statements are kept.
const MOST_SETS: usize = 64;

/// The largest row that the server sends, in bytes: that of a partition with its refused messages
/// ([`positions`](super::positions)).
const ROW: u64 = 6 << 20;

/// A connection, and what is known of the table through it.
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) table: Table,
    /// By the numbers of the columns.
    prepared: HashMap<Vec<usize>, Statement>,
    has_staging: bool,
}

impl Link {
    /// Connects and reads the catalogue.
    ///
    /// # Errors
    /// If the server cannot be reached or used, or the table is not as the options say.
    pub(super) async fn open(config: &PostgresSink, moment: Moment) -> Result<Self, Error> {
        // A statement whose connection was lost ends on the server too.
        let limit = Some(config.server.timeout.duration());
        let connection = Connection::open(&config.server, ROW, limit, moment).await?;
        let table = Table::load(config, &connection, moment).await?;
        Ok(Self { connection, table, prepared: HashMap::new(), has_staging: false })
    }

    /// Returns the statement that takes rows of these columns.
    async fn prepare(&mut self, columns: &[usize]) -> Result<Statement, Failure> {
        if self.table.is_staged(columns) && !self.has_staging {
            self.connection.run(&self.table.staging()).await?;
            self.has_staging = true;
        }
        if let Some(statement) = self.prepared.get(columns) {
            return Ok(statement.clone());
        }
        if self.prepared.len() >= MOST_SETS {
            self.prepared.clear();
        }
        let statement = self.connection.prepare(&self.table.copy(columns)).await?;
        self.prepared.insert(columns.to_vec(), statement.clone());
        Ok(statement)
    }
}

/// Stores rows in one transaction, and returns those that are refused, in order. `lock` is the number of a
/// lock of the transaction. `changes` returns a further statement for the transaction, for these refused
/// rows.
///
/// # Errors
/// If the transaction was not committed, or its commit was not confirmed.
pub(super) async fn store(
    link: &mut Link,
    mut encoded: Encoded,
    lock: Option<i64>,
    changes: impl Fn(&[(u32, String)]) -> Option<String>,
) -> Result<Vec<(u32, String)>, Failure> {
    let mut refused = std::mem::take(&mut encoded.refused);
    if encoded.len() == 0 && changes(&refused).is_none() {
        return Ok(refused);
    }
    let copy = match encoded.len() {
        0 => None,
        _ => Some(link.prepare(&encoded.columns).await?),
    };
    let lock =
        lock.map(|lock| format!("SELECT pg_catalog.pg_advisory_xact_lock({lock}); ")).unwrap_or_default();
    let begin = format!("BEGIN; {lock}SET CONSTRAINTS ALL IMMEDIATE; SAVEPOINT thalweg");
    link.connection.run(&begin).await?;
    if let Some(copy) = &copy {
        let insert = link.table.insert(&encoded.columns);
        let pieces = Pieces { connection: &link.connection, copy, insert, encoded: &encoded };
        refused.extend(pieces.store().await?);
    }
    refused.sort_unstable_by_key(|(row, _)| *row);
    if let Some(changes) = changes(&refused) {
        link.connection.run(&changes).await?;
    }
    link.connection.run("COMMIT").await?;
    Ok(refused)
}

/// The rows of a transaction.
struct Pieces<'a> {
    connection: &'a Connection,
    copy: &'a Statement,
    insert: Option<String>,
    encoded: &'a Encoded,
}

impl Pieces<'_> {
    /// Stores all rows that the server takes. Returns the others.
    async fn store(&self) -> Result<Vec<(u32, String)>, Failure> {
        let mut refused = Vec::new();
        let mut alone = 0;
        // The next piece is the last.
        let mut left: Vec<Range<usize>> = iter::once(0..self.encoded.len()).collect();
        while let Some(piece) = left.pop() {
            let failure = match self.send(piece.clone()).await {
                Ok(()) => {
                    alone = 0;
                    if !left.is_empty() {
                        self.connection.run("RELEASE SAVEPOINT thalweg; SAVEPOINT thalweg").await?;
                    }
                    continue;
                }
                Err(failure) if failure.meaning() == Meaning::Rows => failure,
                Err(failure) => return Err(failure),
            };
            self.connection.run("ROLLBACK TO SAVEPOINT thalweg").await?;
            let reason = failure.reason();
            let count = piece.len();
            let row = |number| self.encoded.row(number);
            match count {
                1 => {
                    alone += 1;
                    refused.extend(piece.map(|number| (row(number), reason.clone())));
                }
                _ if alone >= MOST_ALONE => {
                    let reason = format!("refused with {} other rows: {reason}", count - 1);
                    refused.extend(piece.map(|number| (row(number), reason.clone())));
                }
                _ => {
                    let middle = piece.start + count / 2;
                    left.push(middle..piece.end);
                    left.push(piece.start..middle);
                }
            }
        }
        Ok(refused)
    }

    async fn send(&self, piece: Range<usize>) -> Result<(), Failure> {
        let rows = self.encoded.slice(piece);
        let messages = (0..rows.len().div_ceil(MESSAGE))
            .map(|number| rows.slice(number * MESSAGE..rows.len().min((number + 1) * MESSAGE)));
        let header = iter::once(Bytes::from_static(HEADER));
        let trailer = iter::once(Bytes::from_static(&TRAILER));
        self.connection.copy_in(self.copy, header.chain(messages).chain(trailer)).await?;
        match &self.insert {
            Some(insert) => self.connection.run(insert).await,
            None => Ok(()),
        }
    }
}
