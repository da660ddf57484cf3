//! The end of a pipeline under test: a sink, where it writes, and how that is read back.

use std::io;

use thalweg_engine::Flow;

use crate::oracle::Replica;
use crate::program::Program;
use crate::records::Records;
use crate::servers::Server;

/// The promise of a sink for messages that are sent again after an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It cuts off what no checkpoint covers: each message arrives once.
    ExactlyOnce,
    /// Messages that were sent cannot be taken back: those since the last checkpoint arrive again.
    AtLeastOnce,
}

/// A sink as the last part of a pipeline under test.
#[derive(Clone, Copy)]
pub struct Outlet {
    /// The name of the case.
    pub name: &'static str,
    /// The name of the component.
    pub component: &'static str,
    /// The kind of data that it takes: messages or files.
    pub takes: Flow,
    /// The transforms before it.
    pub steps: &'static [&'static str],
    /// The sinks of the configuration. `{address}` is that of the server, `{topic}` its topic.
    pub sinks: &'static str,
    /// The value of `to`.
    pub to: &'static str,
    /// The budget, if it needs more than the feed.
    pub memory: Option<&'static str>,
    /// The promise of the sink.
    pub delivery: Delivery,
    /// True if it keeps the order.
    pub keeps_order: bool,
    /// True if the transforms before it reject some records: their dead letters are a part of the output.
    pub rejects: bool,
    /// Starts the server that it sends to.
    pub server: Option<fn() -> io::Result<Server>>,
    /// Reads all copies of the output. While a run is interrupted, also what is not finished.
    pub read: Option<Read>,
}

/// Reads the output of a sink.
pub type Read = fn(&Output<'_>) -> io::Result<Vec<Replica>>;

/// Where output is read.
pub struct Output<'a> {
    /// The program's folder.
    pub program: &'a Program,
    /// The server, if the sink sends to one.
    pub server: Option<&'a Server>,
    /// The records of the test.
    pub records: Records,
    /// True if files are read that are not finished.
    pub also_unfinished: bool,
}

impl Outlet {
    /// Returns the sinks of the configuration.
    pub fn config(&self, server: Option<&Server>) -> String {
        let address = server.map(Server::address).unwrap_or_default();
        self.sinks.replace("{address}", &address).replace("{topic}", server.map_or("", Server::topic_name))
    }
}
