//! What takes messages that were read: the outlet of a source, or the intake of what reads files.

use thalweg_engine::{Error, Intake, Outlet, Reading};
use thalweg_record::{Arena, Lease};

/// Takes messages, and gives memory to read them into.
pub trait Taker: Send {
    /// Waits until the budget has room, and gives memory.
    fn arena(&self, capacity: usize) -> impl Future<Output = Arena> + Send;

    /// Claims memory without waiting: for what is in hand, and must go on.
    fn claim(&self, bytes: usize) -> Lease;

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

impl Taker for Outlet {
    async fn arena(&self, capacity: usize) -> Arena {
        Outlet::arena(self, capacity).await
    }

    fn claim(&self, bytes: usize) -> Lease {
        Outlet::claim(self, bytes)
    }

    async fn send(&mut self, reading: Reading) -> Result<(), Error> {
        Outlet::send(self, reading).await
    }

    async fn reject(&mut self, reading: Reading, reason: &str) -> Result<(), Error> {
        Outlet::reject(self, reading, reason).await
    }
}

impl Taker for Intake {
    async fn arena(&self, capacity: usize) -> Arena {
        Intake::arena(self, capacity).await
    }

    fn claim(&self, bytes: usize) -> Lease {
        Intake::claim(self, bytes)
    }

    async fn send(&mut self, reading: Reading) -> Result<(), Error> {
        Intake::send(self, reading).await
    }

    async fn reject(&mut self, reading: Reading, reason: &str) -> Result<(), Error> {
        Intake::reject(self, reading, reason).await
    }
}
