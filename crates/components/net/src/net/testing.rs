//! Helpers for tests of listening sources: the address, and the batches that the source sends, under the
//! control of the test.

use std::time::Duration;

use thalweg_engine::testing::{Arrived, OutputReceiver, RunningSource, start_source_within};
use thalweg_engine::{Error, Source};
use thalweg_record::{Batch, Budget, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Announce;

/// Longer than anything in these tests takes, unless it never happens.
pub(crate) const LONG: Duration = Duration::from_mins(5);
/// Usually long enough for an unwanted event to happen.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it happens at all")
}

/// A running source.
pub(crate) struct Server {
    pub(crate) source: RunningSource,
    pub(crate) address: String,
}

impl Server {
    /// Starts a source and waits until it listens.
    pub(crate) async fn start(source: impl Source + 'static, announce: Announce) -> Self {
        Self::start_within(64 << 20, source, announce).await
    }

    /// As [`start`](Self::start), with a memory budget of this number of bytes.
    pub(crate) async fn start_within(
        memory: usize,
        source: impl Source + 'static,
        announce: Announce,
    ) -> Self {
        let budget = Budget::new(memory);
        let source = start_source_within(&budget, Box::new(source), 1 << 20, Default::default());
        let mut at = announce.watch();
        let address = within(at.wait_for(Option::is_some)).await.unwrap().clone().unwrap();
        Self { source, address }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    /// Takes the next batch from the `main` output.
    pub(crate) async fn next(&self) -> Batch {
        take(&self.source.main).await
    }

    /// Takes the next batch from the `errors` output.
    pub(crate) async fn next_error(&self) -> Batch {
        take(&self.source.errors).await
    }

    /// Delivers batches of the `main` output until they have this number of messages. Returns the payloads.
    pub(crate) async fn delivered(&self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            let batch = self.next().await;
            found.extend(thalweg_engine::testing::payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        found
    }

    /// Stops the source and waits until it has ended. Returns what it sent meanwhile.
    pub(crate) async fn stop(self) -> thalweg_engine::testing::Sent {
        self.source.stop.request();
        within(self.source.finish()).await
    }

    /// Delivers all batches until the source ends.
    pub(crate) fn deliver(self) -> (String, thalweg_runtime::Stop, tokio::task::JoinHandle<Delivered>) {
        let stop = self.source.stop.clone();
        let task = tokio::spawn(async move {
            let mut payloads = Vec::new();
            while let Some((_, Arrived::Messages(batch))) = self.source.main.take().await {
                payloads.extend(thalweg_engine::testing::payloads(&batch));
                batch.settle(Outcome::Delivered);
            }
            Delivered { payloads, result: self.source.task.await.unwrap() }
        });
        (self.address, stop, task)
    }
}

/// The result of [`Server::deliver`].
pub(crate) struct Delivered {
    pub(crate) payloads: Vec<String>,
    pub(crate) result: Result<(), Error>,
}

async fn take(from: &OutputReceiver) -> Batch {
    match within(from.take()).await {
        Some((_, Arrived::Messages(batch))) => batch,
        other => panic!("{other:?} came"),
    }
}

/// Connects from an address of this machine.
pub(crate) async fn connect_from(address: [u8; 4], server: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let port = server.rsplit_once(':').unwrap().1.parse().unwrap();
    socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
}

/// Reads exactly `length` bytes.
pub(crate) async fn read(stream: &mut (impl AsyncReadExt + Unpin), length: usize) -> String {
    let mut bytes = vec![0; length];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads to the end. A connection reset counts as the end.
pub(crate) async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = Vec::new();
    let _ = within(stream.read_to_end(&mut text)).await;
    String::from_utf8(text).unwrap()
}

/// True if nothing arrives for a while.
pub(crate) async fn is_silent(stream: &mut (impl AsyncReadExt + Unpin)) -> bool {
    tokio::time::timeout(SHORT, stream.read_u8()).await.is_err()
}

/// Writes `text` in pieces that are separate packets where possible.
pub(crate) async fn trickle(stream: &mut (impl AsyncWriteExt + Unpin), text: &[u8], piece: usize) {
    for piece in text.chunks(piece) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
