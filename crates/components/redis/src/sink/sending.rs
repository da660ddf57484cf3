//! The messages of a batch on their way to the server.
//!
//! The commands of many messages are written together, and their replies read in order. Each message has its
//! own outcome. Only those without one are sent again: at once as long as others succeed, otherwise when the
//! engine calls the sink with the same batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::Array;
use thalweg_engine::{Error, Rejects};
use thalweg_net::progress::{PAUSE, Progress};
use thalweg_record::{Batch, Share};

use super::answer::Answer;
use super::command::{Bound, Rows};
use super::nodes::Nodes;
use crate::resp::{Commands, Limits, Reply};

/// The bytes of the commands that are written together. The last command may exceed it.
const TOGETHER: usize = 1 << 20;
/// How often in a row a cluster may name other nodes before the sink pauses.
const MOVES: u32 = 5;

/// The limits of a sink.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The number of messages without a reply.
    pub(super) pending: usize,
    /// After this time without success, messages leave by `errors`.
    pub(super) give_up: Option<Duration>,
}

/// The messages of a batch.
pub(super) struct Sending {
    name: String,
    nodes: Nodes,
    times: Times,
    memory: Share,
    progress: Progress,
    /// When the present batch was sent first, or a message of it succeeded last.
    since: Option<Instant>,
    /// The nodes that rows go to once, because their slots are being moved there.
    asked: HashMap<usize, Arc<str>>,
}

/// Commands for one node.
#[derive(Default)]
struct Part {
    commands: Commands,
    /// The rows, each with whether a command comes before its own.
    rows: Vec<(usize, bool)>,
}

/// The results of a round.
#[derive(Default)]
struct Round {
    /// True if a message was stored or refused.
    has_progress: bool,
    failed: Option<Error>,
}

impl Sending {
    pub(super) fn new(name: String, nodes: Nodes, times: Times, memory: Share) -> Self {
        let (progress, since, asked) = (Progress::default(), None, HashMap::new());
        Self { name, nodes, times, memory, progress, since, asked }
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// If none answers.
    pub(super) async fn connect(&mut self) -> Result<(), Error> {
        self.nodes.connection(None).await.map(drop)
    }

    /// Sends the messages of a batch, and waits until each has its outcome.
    ///
    /// # Errors
    /// If no message succeeds any more.
    pub(super) async fn send(
        &mut self,
        rows: &mut Rows,
        batch: &Batch,
        rejects: &mut Rejects,
    ) -> Result<(), Error> {
        if self.progress.begin(batch.payload()) {
            (self.since, self.asked) = (None, HashMap::new());
        }
        let _commands = self.memory.claim(batch.payload_bytes().min(TOGETHER));
        let mut bound = rows.bind(batch);
        let mut since = *self.since.get_or_insert_with(Instant::now);
        let mut moves = 0;
        loop {
            let parts = self.parts(&mut bound, batch.payload().len());
            if parts.is_empty() {
                break;
            }
            let mut round = Round::default();
            for (at, part) in parts {
                self.exchange(at.as_ref(), part, &mut bound, &mut round).await;
            }
            if round.has_progress {
                (since, moves) = (Instant::now(), 0);
                self.since = Some(since);
            } else if round.failed.is_none() {
                moves += 1;
                if moves > MOVES {
                    round.failed =
                        Some(Error::temporary("the nodes of the cluster send messages to each other"));
                }
            }
            let Some(error) = round.failed else { continue };
            if error.kind().is_temporary() && self.gives_up(since) {
                self.reject_rest(batch.payload().len(), &error);
                break;
            }
            if !round.has_progress || !error.kind().is_temporary() {
                return Err(error);
            }
            tracing::warn!("`{}`: the rest of a batch is sent again: {}", self.name, error.full());
            tokio::time::sleep(PAUSE.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
        }
        self.since = None;
        for (row, reason) in self.progress.finish() {
            rejects.reject(row, reason);
        }
        Ok(())
    }

    /// Forgets the batch, which takes another route.
    pub(super) fn forget(&mut self) {
        self.progress.forget();
        self.since = None;
    }

    /// Drops the connections.
    pub(super) fn close(&mut self) {
        self.nodes.close();
    }

    fn gives_up(&self, since: Instant) -> bool {
        self.times.give_up.is_some_and(|span| since.elapsed() >= span)
    }

    fn reject_rest(&mut self, rows: usize, error: &Error) {
        let span = self.times.give_up.unwrap_or_default().as_secs_f64();
        for row in 0..rows {
            let reason = || format!("could not be sent for {span} s (`give_up`): {}", error.full());
            if !self.progress.is_done(row) {
                self.progress.reject(row, reason());
            }
        }
    }

    /// Returns the next commands for each node, of as many messages as may be without a reply.
    fn parts(&mut self, bound: &mut Bound<'_>, rows: usize) -> BTreeMap<Option<Arc<str>>, Part> {
        let mut parts = BTreeMap::<Option<Arc<str>>, Part>::new();
        let (mut pending, mut bytes) = (0, 0);
        for row in self.progress.first()..rows {
            if pending >= self.times.pending || bytes >= TOGETHER {
                break;
            }
            if self.progress.is_done(row) {
                continue;
            }
            let key = bound.key(row);
            let asked = self.asked.remove(&row);
            let is_asked = asked.is_some();
            let at = asked.or_else(|| self.nodes.of(&key).filter(|_| bound.has_key()));
            let part = parts.entry(at).or_default();
            let before = (part.commands.bytes().len(), part.commands.count());
            if is_asked {
                part.commands.push(&[b"ASKING"]);
            }
            match bound.write(row, &key, &mut part.commands) {
                Ok(()) => {
                    part.rows.push((row, is_asked));
                    (pending, bytes) = (pending + 1, bytes + part.commands.bytes().len() - before.0);
                }
                Err(reason) => {
                    part.commands.truncate(before.0, before.1);
                    self.progress.reject(row, reason);
                }
            }
        }
        parts.retain(|_, part| !part.rows.is_empty());
        parts
    }

    /// Sends commands to a node, and notes the outcomes of their messages.
    async fn exchange(
        &mut self,
        at: Option<&Arc<str>>,
        part: Part,
        bound: &mut Bound<'_>,
        round: &mut Round,
    ) {
        let mut not_last = Vec::new();
        let mut outcome = self.send_part(at, &part, &mut not_last, round).await;
        if outcome.is_ok() && !not_last.is_empty() {
            outcome = self.look_up(at, not_last, bound, round).await;
        }
        if let Err(error) = outcome {
            self.nodes.lost(at);
            round.fail(error);
        }
    }

    async fn send_part(
        &mut self,
        at: Option<&Arc<str>>,
        part: &Part,
        not_last: &mut Vec<(usize, String)>,
        round: &mut Round,
    ) -> Result<(), Error> {
        let connection = self.nodes.connection(at).await?;
        connection.send(&part.commands).await?;
        let (mut moved, mut later) = (Vec::new(), None);
        for (row, is_asked) in part.rows.iter().copied() {
            if is_asked {
                connection.reply(Limits::SMALL).await?;
            }
            match Answer::of(connection.reply(Limits::SMALL).await?) {
                Answer::Done => {
                    self.progress.done(row);
                    round.has_progress = true;
                }
                Answer::Refused(reason) => {
                    self.progress.reject(row, reason);
                    round.has_progress = true;
                }
                Answer::NotLast(reason) => not_last.push((row, reason)),
                Answer::Later(reason) => later = Some(reason),
                Answer::Moved { slot, at, is_once: false } => moved.push((slot, at)),
                Answer::Moved { at, .. } => {
                    self.asked.insert(row, at.into());
                }
            }
        }
        for (slot, at) in moved {
            self.nodes.moved(slot, &at);
        }
        match later {
            // A server that has become a replica stays one: another connection may lead to the master.
            Some(reason) => Err(Error::temporary("the server cannot take messages now").caused_by(reason)),
            None => Ok(()),
        }
    }

    /// Finds out whether entries are in their streams already, because they were sent before.
    async fn look_up(
        &mut self,
        at: Option<&Arc<str>>,
        rows: Vec<(usize, String)>,
        bound: &mut Bound<'_>,
        round: &mut Round,
    ) -> Result<(), Error> {
        for (row, reason) in rows {
            let mut is_there = false;
            if let Some(id) = bound.id(row) {
                let (key, id) = (bound.key(row), id.to_string());
                let words: [&[u8]; 6] = [b"XRANGE", &key, id.as_bytes(), id.as_bytes(), b"COUNT", b"1"];
                let connection = self.nodes.connection(at).await?;
                is_there = match connection.call(&words, Limits::SMALL).await? {
                    Reply::List(found) => found.is_cut || !found.values.is_empty(),
                    _ => false,
                };
            }
            match is_there {
                true => self.progress.done(row),
                false => self.progress.reject(row, reason),
            }
            round.has_progress = true;
        }
        Ok(())
    }
}

impl Round {
    /// Notes a failure. One that no retry mends counts most.
    fn fail(&mut self, error: Error) {
        if self.failed.as_ref().is_none_or(|known| known.kind().is_temporary()) {
            self.failed = Some(error);
        }
    }
}
