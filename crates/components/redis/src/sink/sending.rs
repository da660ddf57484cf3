//! The messages of a batch on their way to the server.
//!
//! The commands of many messages are written together, and their replies read in order. Each message has its
//! own outcome. Only those without one are sent again: at once as long as others succeed, otherwise when the
//! engine calls the sink with the same batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::Array;
use thalweg_engine::{Error, Rejects};
use thalweg_net::give_up::GiveUp;
use thalweg_net::progress::{PAUSE, Progress};
use thalweg_record::{Batch, Share};

use super::answer::Answer;
use super::command::{Bound, Rows};
use super::nodes::Nodes;
use crate::connection::refused;
use crate::resp::{Commands, Limits, Reply};

/// The bytes of the commands that are written together. The last command may exceed it.
const TOGETHER: usize = 1 << 20;
/// How often in a row a cluster may name other nodes before the sink pauses.
const MOVES: u32 = 5;

/// The messages of a batch.
pub(super) struct Sending {
    name: String,
    nodes: Nodes,
    /// The number of messages that may be without a reply.
    max_pending: usize,
    give_up: GiveUp,
    memory: Share,
    progress: Progress,
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
    pub(super) fn new(
        name: String,
        nodes: Nodes,
        max_pending: usize,
        give_up: GiveUp,
        memory: Share,
    ) -> Self {
        let (progress, asked) = (Progress::default(), HashMap::new());
        Self { name, nodes, max_pending, give_up, memory, progress, asked }
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
            self.give_up.end();
            self.asked.clear();
        }
        self.give_up.attempt();
        let _commands = self.memory.claim(batch.payload_bytes().min(TOGETHER));
        let mut bound = rows.bind(batch);
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
                self.give_up.succeeded();
                moves = 0;
            } else if round.failed.is_none() {
                moves += 1;
                if moves > MOVES {
                    round.failed =
                        Some(Error::temporary("the nodes of the cluster send messages to each other"));
                }
            }
            let Some(error) = round.failed else { continue };
            let reason = self.give_up.reason(&error.full()).filter(|_| error.kind().is_temporary());
            if let Some(reason) = reason {
                (0..batch.payload().len()).for_each(|row| self.progress.reject(row, reason.clone()));
                break;
            }
            if !round.has_progress || !error.kind().is_temporary() {
                return Err(error);
            }
            tracing::warn!("`{}`: the rest of a batch is sent again: {}", self.name, error.full());
            tokio::time::sleep(PAUSE.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
        }
        self.give_up.end();
        for (row, reason) in self.progress.finish() {
            rejects.reject(row, reason);
        }
        Ok(())
    }

    /// Forgets the batch, which takes another route.
    pub(super) fn forget(&mut self) {
        self.progress.forget();
        self.give_up.end();
    }

    /// Drops the connections.
    pub(super) fn close(&mut self) {
        self.nodes.close();
    }

    /// Returns the next commands for each node, of as many messages as may be without a reply.
    fn parts(&mut self, bound: &mut Bound<'_>, rows: usize) -> BTreeMap<Option<Arc<str>>, Part> {
        let mut parts = BTreeMap::<Option<Arc<str>>, Part>::new();
        let (mut pending, mut bytes) = (0, 0);
        for row in self.progress.first()..rows {
            if pending >= self.max_pending || bytes >= TOGETHER {
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
            Some(reason) => {
                // A server that has become a replica stays one: another may be the primary.
                if at.is_none() {
                    self.nodes.follow(&reason);
                }
                Err(Error::temporary("the server cannot take messages now").caused_by(reason))
            }
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
                    Reply::Error(error) => {
                        let error = refused("an entry cannot be looked up", &error);
                        if error.kind().is_temporary() {
                            return Err(error);
                        }
                        false
                    }
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
