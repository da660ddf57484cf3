//! Acknowledgements: sent when messages are settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_broker::keeping::{Settling, settle_wait};
use thalweg_engine::{Error, Settled, SourceOutput};
use thalweg_record::{Outcome, Settlement};
use tokio::sync::mpsc;

use super::AmqpSource;
use super::unacknowledged::{Answer, Unacknowledged};
use crate::connection::Writer;

/// How often the keeper looks after the end of the source.
const LOOK: Duration = Duration::from_millis(100);
/// How long messages that failed wait before they return to their queue, which delivers them at once.
const RETRY: Duration = Duration::from_secs(1);

/// Messages that were sent on, by their numbers.
pub(super) struct Sent {
    pub(super) tags: Vec<u64>,
    pub(super) settled: Settled,
}

/// The acknowledgements of a connection.
pub(super) struct Acknowledgements {
    open: Arc<Mutex<Unacknowledged>>,
    /// True to reject messages that left by `errors`.
    rejects: bool,
    /// True if the queues are streams, which take nothing back.
    are_streams: bool,
    /// The batches that are on their way, each with the numbers of its messages.
    settling: Settling<Vec<u64>>,
}

impl Acknowledgements {
    pub(super) fn new(open: Arc<Mutex<Unacknowledged>>, config: &AmqpSource) -> Self {
        let (rejects, are_streams) = (config.reject_dead_letters, config.reads_streams());
        Self { open, rejects, are_streams, settling: Settling::default() }
    }

    /// Acknowledges what is settled, until the news have ended and all is acknowledged.
    ///
    /// # Errors
    /// If the connection breaks: the server delivers the messages again. Also if a message of a stream
    /// failed: it comes again over another connection only.
    pub(super) async fn keep(
        &mut self,
        writer: &Writer,
        out: &SourceOutput,
        mut news: mpsc::UnboundedReceiver<Sent>,
    ) -> Result<(), Error> {
        let (mut has_news, mut moved) = (true, Instant::now());
        loop {
            tokio::select! {
                sent = news.recv(), if has_news => match sent {
                    Some(sent) => self.wait_for(sent, out),
                    None => (has_news, moved) = (false, Instant::now()),
                },
                Some((tags, settlement)) = self.settling.next() => {
                    moved = Instant::now();
                    self.settled(writer, out, tags, settlement).await?;
                }
                () = tokio::time::sleep(LOOK), if !has_news => {
                    // Messages are settled after a checkpoint.
                    out.save_soon();
                }
            }
            if !has_news && self.is_over(out, moved) {
                return Ok(());
            }
        }
    }

    fn wait_for(&mut self, sent: Sent, out: &SourceOutput) {
        let Sent { tags, settled } = sent;
        let (open, is_dry, count) = (self.open.clone(), out.is_dry(), tags.len());
        self.settling.add(tags, async move {
            let settlement = settled.await;
            if !settlement.outcome.is_safe() {
                if !is_dry {
                    open.lock().fail(count);
                }
                tokio::time::sleep(RETRY).await;
            }
            settlement
        });
    }

    /// True if the source need not wait any longer.
    fn is_over(&self, out: &SourceOutput, moved: Instant) -> bool {
        self.settling.is_empty() || moved.elapsed() >= settle_wait(out)
    }

    async fn settled(
        &self,
        writer: &Writer,
        out: &SourceOutput,
        tags: Vec<u64>,
        settlement: Settlement,
    ) -> Result<(), Error> {
        let answer = match settlement.outcome {
            Outcome::Rejected if self.rejects => Answer::Reject,
            outcome if outcome.is_safe() => Answer::Ack,
            // The end of the connection returns the messages to their queues.
            _ if out.is_dry() => return Ok(()),
            _ => Answer::Requeue,
        };
        if answer == Answer::Requeue {
            let reason = settlement.reason.as_deref().unwrap_or("no reason is known");
            if self.are_streams {
                // A stream takes a rejection as an acknowledgement, and goes on behind the messages.
                let message = "messages of a stream failed, which is read again from `x-stream-offset` on";
                return Err(Error::temporary(message).caused_by(reason.to_owned()));
            }
            tracing::warn!("`{}`: {} messages return to their queues: {reason}", out.name(), tags.len());
        }
        let mut frames = Vec::new();
        self.open.lock().answer(&tags, answer, &mut frames);
        writer.write(&frames).await
    }
}
