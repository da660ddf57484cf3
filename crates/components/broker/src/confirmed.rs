//! Sinks whose server confirms each message.
//!
//! A batch is durable when each of its messages is confirmed, or refused for good, so there is nothing to
//! flush. One batch is on its way at a time. The time of `give_up` counts while the server confirms nothing.

use async_trait::async_trait;
use thalweg_engine::{Error, Rejects, Sink, WriteOutcome};
use thalweg_net::give_up::GiveUp;
use thalweg_record::Batch;

/// The messages of a batch of a [`Confirming`] client, with their outcomes.
pub trait Pending: Default + Send {
    /// Notes that all messages without an outcome are refused.
    fn refuse_rest(&mut self, reason: &str);

    /// Ends the batch. Returns the refused rows in order.
    fn finish(&mut self) -> Vec<(u32, String)>;
}

/// A client of a server that confirms messages.
#[async_trait]
pub trait Confirming: Send {
    /// The messages of its present batch.
    type Pending: Pending;

    /// Connects to a server, unless that is done.
    ///
    /// # Errors
    /// If no server can be used.
    async fn connect(&mut self) -> Result<(), Error>;

    /// Begins a batch, or continues it if it is the same as before.
    fn begin(&mut self, batch: &Batch);

    /// Sends the messages of the batch that was begun, and waits until each has its outcome.
    ///
    /// # Errors
    /// If some have none. After a temporary error they are sent again.
    async fn send(&mut self, batch: &Batch) -> Result<(), Error>;

    /// Forgets the connection: its confirmations would be those of messages that have left another way.
    fn abandon(&mut self);

    /// Ends the connection, if there is one.
    async fn close(&mut self);

    /// Returns the messages of the present batch.
    fn pending(&mut self) -> &mut Self::Pending;

    /// Returns the time that the present batch may still fail.
    fn give_up(&mut self) -> &mut GiveUp;
}

/// The sink of a client.
#[derive(Debug)]
pub struct Confirmed<C>(pub C);

#[async_trait]
impl<C: Confirming> Sink for Confirmed<C> {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        self.0.connect().await
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.0.begin(batch);
        self.0.give_up().attempt();
        if let Err(error) = self.0.send(batch).await {
            let reason = self.0.give_up().refusal(error)?;
            self.0.abandon();
            self.0.pending().refuse_rest(&reason);
        }
        self.0.give_up().end();
        for (row, reason) in self.0.pending().finish() {
            rejects.reject(row, reason);
        }
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.0.abandon();
        self.0.give_up().end();
        *self.0.pending() = C::Pending::default();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.0.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use thalweg_config::TimeSpan;
    use thalweg_engine::testing::batch;

    use super::*;

    /// A client whose server takes nothing.
    struct Down {
        /// The rows without an outcome, and the reason if they were refused.
        pending: Open,
        give_up: GiveUp,
        abandoned: usize,
    }

    #[derive(Default)]
    struct Open(u32, Option<String>);

    impl Pending for Open {
        fn refuse_rest(&mut self, reason: &str) {
            self.1 = Some(reason.to_owned());
        }

        fn finish(&mut self) -> Vec<(u32, String)> {
            let Self(rows, reason) = std::mem::take(self);
            reason.into_iter().flat_map(|reason| (0..rows).map(move |row| (row, reason.clone()))).collect()
        }
    }

    #[async_trait]
    impl Confirming for Down {
        type Pending = Open;

        async fn connect(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn begin(&mut self, batch: &Batch) {
            self.pending.0 = batch.rows() as u32;
        }

        async fn send(&mut self, _: &Batch) -> Result<(), Error> {
            Err(Error::temporary("down"))
        }

        fn abandon(&mut self) {
            self.abandoned += 1;
        }

        async fn close(&mut self) {}

        fn pending(&mut self) -> &mut Open {
            &mut self.pending
        }

        fn give_up(&mut self) -> &mut GiveUp {
            &mut self.give_up
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_fails_until_it_is_given_up_and_its_confirmations_are_not_waited_for_then() {
        let give_up = GiveUp::after(Some(TimeSpan::seconds(10)));
        let mut sink = Confirmed(Down { pending: Open::default(), give_up, abandoned: 0 });
        let (batch, mut rejects) = (batch(["a", "b"]), Rejects::default());
        assert_eq!(sink.write(&batch, &mut rejects).await.unwrap_err().to_string(), "down");
        assert_eq!(sink.0.abandoned, 0);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(sink.write(&batch, &mut rejects).await.unwrap(), WriteOutcome::Durable);
        let reason = "could not be sent for 10 s (`give_up`): down".to_owned();
        assert_eq!(rejects.take(), [(0, reason.clone()), (1, reason)]);
        assert_eq!(sink.0.abandoned, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_takes_another_route_is_forgotten() {
        let give_up = GiveUp::after(Some(TimeSpan::seconds(10)));
        let mut sink = Confirmed(Down { pending: Open::default(), give_up, abandoned: 0 });
        assert!(sink.write(&batch(["a"]), &mut Rejects::default()).await.is_err());
        sink.drop_batch();
        assert_eq!((sink.0.abandoned, sink.0.pending.0), (1, 0));
        tokio::time::advance(Duration::from_secs(10)).await;
        // The time of the next one begins with it.
        assert!(sink.write(&batch(["b"]), &mut Rejects::default()).await.is_err());
    }
}
