//! The positions of stored messages, for `exactly_once`.
//!
//! A message has a place: its source, its file or partition, its position there, and its number among
//! messages of the same position, which `split` makes of one. A file is known by its sequence
//! ([`Meta::sequence`]), because a path may become that of another file. A source sends messages of a
//! partition in the order of their places, and after a restart again from some place on, the same or later
//! ones in the same order. So one place for each partition, that of the last message, tells which messages
//! are stored: those up to it. It is written in the transaction that stores the messages. Neither the batches
//! nor the checkpoints of the run matter, so a run may cut its input differently.
//!
//! Two things would break this rule, and are looked after:
//!
//! - *Refused messages* lie before the last place, but are not stored. Their dead letters are kept only with
//!   the next checkpoint, and if the run is killed before, they come again. The places of refused messages
//!   are therefore stored too, until a checkpoint covers them (the steps of [`Sink::uncommitted`]). Such a
//!   message is tried again.
//! - *A transaction of a killed run* may be committed after the next run has looked. Each transaction takes a
//!   lock of its sink, before anything else is sent, and so does the reading of the places.
//!
//! The sink is known by a random name, which the journal keeps: two runs never take each other's places,
//! whatever their sources and files are called, and a run with a new state directory stores all again.
//!
//! Two alternatives were rejected. *Numbers of batches*: another run cuts batches differently. *A hash for
//! each message*: it needs a table as long as the target.
//!
//! [`Sink::uncommitted`]: thalweg_engine::Sink::uncommitted
//! [`Meta::sequence`]: thalweg_record::Meta::sequence

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use thalweg_engine::{Error, Journal};
use thalweg_record::Batch;

use crate::connection::Connection;
use crate::failure::{Failure, Moment};
use crate::sql::{TableName, literal};

/// The entry of the journal with the name of the sink.
const NAME: &str = "name";

/// The number of files or partitions whose places are read, the latest ones: the checkpoints of a run cover
/// files long before as many others were begun.
const READ: usize = 4000;

/// The largest number of files or partitions that are known. From [`READ`] on, the oldest are forgotten that
/// a checkpoint covers: their rows stay in the table.
const MOST: usize = 2 * READ;

/// The largest number of refused messages that no checkpoint covers. Their places, of up to 32 bytes each,
/// and those of one more batch must fit into a row that a later run reads.
const MOST_REFUSED: usize = 50_000;

/// The most bytes of the names of a partition. The server's index takes 2700, and would refuse each attempt.
const LONGEST: usize = 2000;

/// The number of the lock under which the table is created: of two sinks that create it at the same time, one
/// would fail in spite of `IF NOT EXISTS`.
const CREATION: i64 = 0x7468_616c_7765_6721;

/// A position, and the number among the messages that have it.
type Place = (u64, u64);

/// A file or partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Partition {
    source: Arc<str>,
    /// The sequence that its positions belong to.
    sequence: Arc<str>,
}

/// The knowledge of a partition.
#[derive(Debug, Default, Clone)]
struct Known {
    /// The last place that is stored.
    last: Option<Place>,
    /// The refused places up to it.
    refused: BTreeSet<Place>,
    /// Places that ended elsewhere, which no transaction has noted yet.
    left: BTreeSet<Place>,
    /// The last place that came in this run.
    seen: Option<Place>,
}

impl Known {
    /// True if a message is not to be stored again.
    fn has(&self, place: Place) -> bool {
        self.last.is_some_and(|last| place <= last) && !self.refused.contains(&place)
    }

    /// Notes what is stored.
    fn load(&mut self, last: Place, refused: BTreeSet<Place>) {
        // A commit whose confirmation was lost may have stored what then ended elsewhere.
        self.left.retain(|place| *place > last || refused.contains(place));
        (self.last, self.refused) = (Some(last), refused);
    }
}

/// The places of the messages of a batch.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    partition: Partition,
    /// For each row: its place, and whether it is stored already.
    rows: Vec<(Place, bool)>,
}

impl Plan {
    /// Returns the rows that are not stored already.
    pub(super) fn unstored(&self) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, (_, is_stored))| !is_stored).map(|(row, _)| row)
    }
}

/// The stored positions of a sink.
#[derive(Debug)]
pub(super) struct Positions {
    /// The name of the sink, of 32 hexadecimal digits.
    name: String,
    /// The number of its lock.
    lock: i64,
    table: TableName,
    known: HashMap<Partition, Known>,
    /// The refused messages of a partition that wait for a checkpoint, of each transaction, and the partition
    /// if it is a new one.
    steps: VecDeque<(Partition, Vec<Place>)>,
    /// The partitions that may be forgotten, the oldest first.
    covered: VecDeque<Partition>,
}

impl Positions {
    /// Returns the positions of the sink that the journal belongs to.
    ///
    /// # Errors
    /// If the journal cannot be read or written.
    pub(super) fn new(table: &str, journal: &Journal) -> Result<Self, Error> {
        let known = journal.entries(NAME)?.pop().and_then(|(_, name)| name.as_str().map(str::to_owned));
        let name = match known {
            Some(name) => name,
            None => {
                let name = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
                journal.note(NAME, &name.as_str().into())?;
                name
            }
        };
        Ok(Self::of(name, table))
    }

    fn of(name: String, table: &str) -> Self {
        let lock = name.get(..16).and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or_default();
        let (steps, covered) = (VecDeque::new(), VecDeque::new());
        let (lock, table) = (lock.cast_signed(), TableName::new(table));
        Self { name, lock, table, known: HashMap::new(), steps, covered }
    }

    /// Returns the number of the lock that each transaction takes first.
    pub(super) fn lock(&self) -> i64 {
        self.lock
    }

    /// Reads what is stored.
    ///
    /// # Errors
    /// If the server refuses it.
    pub(super) async fn load(&mut self, connection: &Connection, moment: Moment) -> Result<(), Error> {
        let table = self.table.quoted();
        let rows = self.read(connection).await;
        let rows = rows.map_err(|failure| failure.error(format!("cannot use the table {table}"), moment))?;
        for known in self.known.values_mut() {
            (known.last, known.refused) = (None, BTreeSet::new());
        }
        for row in rows {
            let [Some(source), Some(sequence), Some(position), Some(number), Some(refused)] = &row[..] else {
                return Err(Error::permanent(format!("the table {table} is not that of `exactly_once`")));
            };
            let partition = Partition { source: source.as_str().into(), sequence: sequence.as_str().into() };
            let last: Option<Place> = position.parse().ok().zip(number.parse().ok());
            let refused = serde_json::from_str::<BTreeSet<Place>>(refused);
            let (Some(last), Ok(refused)) = (last, refused) else {
                return Err(Error::permanent(format!("the table {table} has a row that is damaged")));
            };
            self.known.entry(partition).or_default().load(last, refused);
        }
        Ok(())
    }

    async fn read(&self, connection: &Connection) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let (table, lock, name) = (self.table.quoted(), self.lock, literal(&self.name));
        let create = format!(
            "BEGIN; SELECT pg_catalog.pg_advisory_xact_lock({CREATION}); \
             CREATE TABLE IF NOT EXISTS {table} (sink text, source text, sequence text, \
             position bigint NOT NULL, number bigint NOT NULL, refused text NOT NULL, \
             changed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (sink, source, sequence)); COMMIT"
        );
        let found = format!("SELECT pg_catalog.to_regclass({})", literal(&table));
        // A user who may not create tables can use one that is there.
        if !matches!(&connection.rows(&found).await?[..], [row] if row.iter().any(Option::is_some)) {
            connection.run(&create).await?;
        }
        // Behind a transaction of a former run that is still being committed. With another isolation, which
        // may be the default of the user, the wait for the lock would begin a snapshot without that commit.
        let locked =
            format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_catalog.pg_advisory_xact_lock({lock})");
        connection.run(&locked).await?;
        let query = format!(
            "SELECT source, sequence, position, number, refused FROM {table} WHERE sink = {name} \
                     ORDER BY changed DESC LIMIT {READ}"
        );
        let rows = connection.rows(&query).await?;
        connection.run("COMMIT").await?;
        Ok(rows)
    }

    /// Finds out which messages of a batch are stored.
    ///
    /// # Errors
    /// If messages have no positions, or come again in another order.
    pub(super) fn plan(&self, batch: &Batch) -> Result<Plan, Error> {
        let meta = batch.meta();
        let source = &meta.source;
        // Others begin again with each run, or each connection, and their messages would be skipped.
        let (Some(positions), Some(sequence)) = (batch.positions(), &meta.sequence) else {
            let message = "have no positions that grow, which `exactly_once` needs: see its sources";
            return Err(Error::permanent(format!("messages of `{source}` {message}")));
        };
        let partition = Partition { source: source.clone(), sequence: sequence.clone() };
        self.check_room(&partition)?;
        let known = self.known.get(&partition);
        let mut seen = known.and_then(|known| known.seen);
        let mut rows = Vec::with_capacity(batch.rows());
        for row in 0..batch.rows().min(positions.len()) {
            let position = positions.value(row);
            if i64::try_from(position).is_err() {
                let message =
                    format!("the position {position} of `{source}` is too large for `exactly_once`");
                return Err(Error::permanent(message));
            }
            let place = next(seen, position).ok_or_else(|| went_back(batch, position))?;
            seen = Some(place);
            rows.push((place, known.is_some_and(|known| known.has(place))));
        }
        Ok(Plan { partition, rows })
    }

    /// Checks that the places of one more batch can be kept.
    fn check_room(&self, partition: &Partition) -> Result<(), Error> {
        let Partition { source, sequence } = partition;
        if source.len() + sequence.len() > LONGEST {
            let message = "bytes for the names of a file and its partition";
            return Err(Error::permanent(format!(
                "messages of `{source}` have more than {LONGEST} {message}: `exactly_once` cannot keep their \
                 positions"
            )));
        }
        if self.known.len() >= MOST && !self.known.contains_key(partition) {
            let message = "files or partitions, more than `exactly_once` keeps positions of";
            return Err(Error::permanent(format!("there are more than {MOST} {message}")));
        }
        match self.known.values().map(|known| known.refused.len()).sum::<usize>() > MOST_REFUSED {
            true => Err(Error::permanent(format!(
                "the server refused more than {MOST_REFUSED} messages since the last checkpoint"
            ))),
            false => Ok(()),
        }
    }

    /// Returns the statement that stores the places of a batch whose rows in `refused` are not stored. None
    /// if nothing changes.
    pub(super) fn statement(&self, plan: &Plan, refused: &[(u32, String)]) -> Option<String> {
        let new = self.change(plan, refused)?;
        let (position, number) = new.last?;
        let known = self.known.get(&plan.partition);
        if known.is_some_and(|known| known.last == new.last && known.refused == new.refused) {
            return None;
        }
        let list = serde_json::to_string(&new.refused).unwrap_or_default();
        let Partition { source, sequence } = &plan.partition;
        let texts: [&str; 3] = [&self.name, source, sequence];
        let names = texts.map(literal).join(", ");
        let (table, list) = (self.table.quoted(), literal(&list));
        Some(format!(
            "INSERT INTO {table} (sink, source, sequence, position, number, refused, changed) \
             VALUES ({names}, {position}, {number}, {list}, now()) \
             ON CONFLICT (sink, source, sequence) DO UPDATE SET position = EXCLUDED.position, \
             number = EXCLUDED.number, refused = EXCLUDED.refused, changed = EXCLUDED.changed"
        ))
    }

    /// Returns what is known of the partition of a batch once the batch is stored. None if it has no
    /// messages.
    fn change(&self, plan: &Plan, refused: &[(u32, String)]) -> Option<Known> {
        let (first, _) = plan.rows.first()?;
        let refused: BTreeSet<usize> = refused.iter().map(|(row, _)| *row as usize).collect();
        let mut known = self.known.get(&plan.partition).cloned().unwrap_or_default();
        if known.seen.is_none() {
            // A checkpoint covers what lies before the first message of a run.
            known.refused = known.refused.split_off(first);
        }
        let left = std::mem::take(&mut known.left);
        known.refused.extend(left);
        for (row, (place, is_stored)) in plan.rows.iter().enumerate() {
            known.seen = Some(*place);
            known.last = known.last.max(Some(*place));
            if refused.contains(&row) {
                known.refused.insert(*place);
            } else if !is_stored {
                known.refused.remove(place);
            }
        }
        Some(known)
    }

    /// Notes that a batch was stored, except for these rows.
    pub(super) fn stored(&mut self, plan: &Plan, refused: &[(u32, String)]) {
        let is_new = self.is_new(plan);
        if let Some(known) = self.change(plan, refused) {
            self.known.insert(plan.partition.clone(), known);
        }
        self.wait(plan, is_new, refused.iter().map(|(row, _)| *row as usize));
    }

    /// Notes that those messages of a batch that are not stored ended elsewhere.
    pub(super) fn left(&mut self, plan: &Plan) {
        let is_new = self.is_new(plan);
        let known = self.known.entry(plan.partition.clone()).or_default();
        for (place, is_stored) in &plan.rows {
            known.seen = Some(*place);
            if !is_stored {
                known.left.insert(*place);
            }
        }
        self.wait(plan, is_new, plan.unstored());
    }

    /// True if nothing of the partition came in this run, or since it was forgotten.
    fn is_new(&self, plan: &Plan) -> bool {
        self.known.get(&plan.partition).is_none_or(|known| known.seen.is_none())
    }

    /// Lets rows wait for a checkpoint, and a new partition.
    fn wait(&mut self, plan: &Plan, is_new: bool, rows: impl Iterator<Item = usize>) {
        let waiting: Vec<Place> = rows.filter_map(|row| Some(plan.rows.get(row)?.0)).collect();
        if is_new || !waiting.is_empty() {
            self.steps.push_back((plan.partition.clone(), waiting));
        }
    }

    /// Returns the number of transactions with refused messages or new partitions that wait for a checkpoint.
    pub(super) fn uncommitted(&self) -> usize {
        self.steps.len()
    }

    /// Forgets the refused messages of the first `count` of them, whose dead letters are kept, and the oldest
    /// partitions if there are many.
    pub(super) fn commit(&mut self, count: usize) {
        for (partition, places) in self.steps.drain(..count.min(self.steps.len())) {
            if let Some(known) = self.known.get_mut(&partition) {
                for place in places {
                    known.refused.remove(&place);
                    known.left.remove(&place);
                }
                self.covered.push_back(partition);
            }
        }
        // Each partition is looked at once: one with refused messages comes again with their step.
        while self.known.len() > READ
            && let Some(oldest) = self.covered.pop_front()
        {
            let is_free = |known: &Known| known.refused.is_empty() && known.left.is_empty();
            if self.known.get(&oldest).is_some_and(is_free) {
                self.known.remove(&oldest);
            }
        }
        // A partition whose messages are refused again and again is there many times.
        if self.covered.len() > MOST {
            let mut seen = BTreeSet::new();
            self.covered.retain(|partition| seen.insert(partition.clone()));
        }
    }
}

/// Returns the place of a message at `position`, behind the one at `seen`. None if that is before it.
fn next(seen: Option<Place>, position: u64) -> Option<Place> {
    match seen {
        Some((last, _)) if position < last => None,
        Some((last, number)) if position == last => Some((position, number + 1)),
        _ => Some((position, 0)),
    }
}

fn went_back(batch: &Batch, position: u64) -> Error {
    let meta = batch.meta();
    let (source, path) = (&meta.source, meta.path.as_deref().unwrap_or_default());
    Error::permanent(format!(
        "the positions of `{source}` in `{path}` went back to {position}: `exactly_once` needs messages in order, \
         by one pipeline"
    ))
}
