//! What takes messages that were read: the outlet of a source, or the intake of what reads files.

use thalweg_engine::{Error, Reading, SourceOutput};
use thalweg_record::{Arena, Lease, Share};

/// Takes messages, and gives memory to read them into.
pub trait Taker: Send {
    /// Its share of the budget, for memory that others wait for.
    fn share(&self) -> &Share;

    /// Waits until the budget has room, and gives memory.
    fn arena(&self, capacity: usize) -> impl Future<Output = Arena> + Send {
        self.share().arena(capacity)
    }

    /// Claims memory without waiting: for what is in hand, and must go on.
    fn claim(&self, bytes: usize) -> Lease {
        self.share().budget().claim(bytes)
    }

    /// Sends messages on.
    ///
    /// # Errors
    /// If the run is ending and nobody takes them.
    fn send(&mut self, reading: Reading) -> impl Future<Output = Result<(), Error>> + Send;

    /// Sends messages to the `errors` output.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn reject(&mut self, reading: Reading, reason: &str) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Taker for SourceOutput {
    fn share(&self) -> &Share {
        SourceOutput::share(self)
    }

    async fn send(&mut self, reading: Reading) -> Result<(), Error> {
        SourceOutput::send(self, reading).await
    }

    async fn reject(&mut self, reading: Reading, reason: &str) -> Result<(), Error> {
        SourceOutput::reject(self, reading, reason).await
    }
}
