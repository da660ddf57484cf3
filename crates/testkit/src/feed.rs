//! The beginning of a pipeline under test: a source, how its input is made, and who sends to it.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};

use thalweg_engine::Flow;

use crate::program::{Program, Running};
use crate::records::{Form, Records};

/// The fate of messages that no checkpoint covers when the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// The source reads them again.
    Replayable,
    /// Their sender was not answered and sends them again.
    Acknowledged,
    /// They come only once. Messages that were in the output stay there.
    Once,
    /// As `Once`, and they may be lost on their way to the source.
    Datagrams,
}

/// How a run ends without being interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// By itself.
    Alone,
    /// By SIGTERM, when all has arrived.
    WhenTold,
}

/// A source as the first part of a pipeline under test.
#[derive(Clone, Copy)]
pub struct Feed {
    /// The name of the case.
    pub name: &'static str,
    /// The name of the component.
    pub component: &'static str,
    /// The transforms that make messages of the files that it gives, and write each as a record.
    pub steps: &'static [&'static str],
    /// The kind of data that the source gives: messages or files.
    pub flow: Flow,
    /// The fate of messages in flight.
    pub nature: Nature,
    /// How a run ends.
    pub ends: Ends,
    /// The number of partitions: ranges of numbers of equal size.
    pub partitions: u64,
    /// True if order is kept within partitions.
    pub keeps_order: bool,
    /// True if a run with the state of one that was completed reads nothing again.
    pub remembers: bool,
    /// The budget with which it is tested, as in a configuration.
    pub memory: &'static str,
    /// The most records that it can be tested with.
    pub most: u64,
    /// Makes the input.
    pub prepare: fn(&Program, Records) -> io::Result<Prepared>,
    /// Sends to the source while it runs.
    pub client: Option<Client>,
}

/// Sends records to a running source, until all are sent or the process has ended.
pub type Client = fn(&mut Sender, &mut Running) -> io::Result<()>;

/// The input of a source.
pub struct Prepared {
    /// The source's configuration: `file: { path: in.jsonl }`.
    pub source: String,
    /// A value that must live as long as the runs, such as a server.
    pub held: Option<Box<dyn Any>>,
}

impl Prepared {
    /// Returns a source that reads what lies in the folder.
    pub fn of(source: impl Into<String>) -> Self {
        Self { source: source.into(), held: None }
    }
}

/// The client of a source, over all runs of a test.
#[derive(Debug)]
pub struct Sender {
    /// The records that it sends.
    pub records: Records,
    /// The folder in which the program runs.
    pub folder: PathBuf,
    /// The first record that is not acknowledged, or not sent if there are no acknowledgements.
    pub next: u64,
    /// The number of records that were sent at least once.
    pub sent: u64,
    /// How many times a record was sent again.
    pub resent: u64,
    /// The first record that the current run got.
    pub run_began_at: u64,
}

impl Sender {
    /// Returns a client that has sent nothing.
    pub fn new(records: Records, folder: &Path) -> Self {
        Self { records, folder: folder.to_owned(), next: 0, sent: 0, resent: 0, run_began_at: 0 }
    }

    /// True if nothing is left to send.
    pub fn is_done(&self) -> bool {
        self.next >= self.records.count
    }

    /// The number of records that it sends together, at most about a megabyte. With each group it waits for
    /// an answer, which may take a second.
    pub fn group(&self) -> u64 {
        let most = (1 << 20) / self.records.padding.max(1) as u64;
        (self.records.count / 20).max(100).min(most).max(1)
    }

    /// Returns the next records that fit into `count`, and notes that they are being sent.
    pub fn take(&mut self, count: u64) -> std::ops::Range<u64> {
        let end = (self.next + count).min(self.records.count);
        self.resent += self.sent.min(end).saturating_sub(self.next);
        self.sent = self.sent.max(end);
        self.next..end
    }

    /// Returns the lines of some records.
    pub fn lines(&self, numbers: std::ops::Range<u64>, form: Form) -> Vec<u8> {
        numbers.flat_map(|number| (self.records.text(number, form) + "\n").into_bytes()).collect()
    }
}
