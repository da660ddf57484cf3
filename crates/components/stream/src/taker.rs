//! The common interface of a source's output and of a file reader's output.

use thalweg_engine::{Error, FileOutput, Reading, SourceOutput};
use thalweg_record::{Arena, Lease, Share};

/// Accepts messages, and provides memory to read them into.
pub trait Taker: Send {
    /// Returns the account with the budget from which memory is reserved.
    fn share(&self) -> &Share;

    /// Waits until the budget has capacity, and returns memory of `capacity` bytes.
    fn arena(&self, capacity: usize) -> impl Future<Output = Arena> + Send {
        self.share().arena(capacity)
    }

    /// Takes memory from the budget without waiting, for data that is already in memory and must be passed
    /// on.
    fn claim(&self, bytes: usize) -> Lease {
        self.share().budget().claim(bytes)
    }

    /// Sends messages.
    ///
    /// # Errors
    /// If the run is ending and no component receives them.
    fn send(&mut self, reading: Reading) -> impl Future<Output = Result<(), Error>> + Send;

    /// Sends messages to the `errors` output.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
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

impl Taker for FileOutput {
    fn share(&self) -> &Share {
        FileOutput::share(self)
    }

    async fn send(&mut self, reading: Reading) -> Result<(), Error> {
        FileOutput::send(self, reading).await
    }

    async fn reject(&mut self, reading: Reading, reason: &str) -> Result<(), Error> {
        FileOutput::reject(self, reading, reason).await
    }
}
