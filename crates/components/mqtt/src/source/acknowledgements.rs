//! Acknowledgements: sent when messages are settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_broker::keeping::{Settling, settle_wait};
use thalweg_engine::{Error, Settled, SourceOutput};
use thalweg_record::Settlement;
use tokio::sync::mpsc;

use super::deliveries::Deliveries;
use crate::connection::Writer;
use crate::wire::{self, Reason};

/// How often the keeper looks after the end of the source.
const LOOK: Duration = Duration::from_millis(100);

/// News of the task that sends messages on.
pub(super) enum News {
    /// Messages with these keys were sent on.
    Sent(Vec<u64>, Settled),
    /// A message came again that is settled.
    Due,
}

/// The acknowledgements of a session, over all connections of the source.
#[derive(Default)]
pub(super) struct Acknowledgements {
    pub(super) deliveries: Arc<Mutex<Deliveries>>,
    /// The batches that are on their way, each with the keys of its messages.
    settling: Settling<Vec<u64>>,
}

impl Acknowledgements {
    /// Acknowledges what is settled, until the news have ended and all is acknowledged.
    ///
    /// # Errors
    /// If messages failed, or the connection breaks: another connection makes the server send them again.
    pub(super) async fn keep(
        &mut self,
        writer: &Writer,
        out: &SourceOutput,
        news: &mut mpsc::UnboundedReceiver<News>,
    ) -> Result<(), Error> {
        let (mut has_news, mut moved) = (true, Instant::now());
        loop {
            tokio::select! {
                new = news.recv(), if has_news => match new {
                    Some(News::Sent(keys, settled)) => self.settling.add(keys, settled),
                    Some(News::Due) => {
                        acknowledge(&self.deliveries, writer).await?;
                    }
                    None => (has_news, moved) = (false, Instant::now()),
                },
                Some((keys, settlement)) = self.settling.next() => {
                    moved = Instant::now();
                    self.settled(out, &keys, settlement)?;
                    acknowledge(&self.deliveries, writer).await?;
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

    /// Takes the news that are left at the end of a connection. The server sends these messages again over
    /// the next one, and would wait for their acknowledgements for ever.
    pub(super) fn take_rest(&mut self, news: &mut mpsc::UnboundedReceiver<News>) {
        while let Ok(new) = news.try_recv() {
            if let News::Sent(keys, settled) = new {
                self.settling.add(keys, settled);
            }
        }
    }

    /// True if the source need not wait any longer.
    fn is_over(&self, out: &SourceOutput, moved: Instant) -> bool {
        self.settling.is_empty() || moved.elapsed() >= settle_wait(out)
    }

    fn settled(&self, out: &SourceOutput, keys: &[u64], settlement: Settlement) -> Result<(), Error> {
        if settlement.outcome.is_safe() {
            self.deliveries.lock().settle(keys);
            return Ok(());
        }
        // Messages without an acknowledgement do not come again.
        if out.is_dry() || keys.is_empty() {
            return Ok(());
        }
        // The protocol has no other way to ask for them.
        self.deliveries.lock().fail(keys);
        Err(Error::temporary(
            "messages were not delivered; the server sends them again over a new connection",
        )
        .caused_by(settlement.reason.unwrap_or_else(|| "no reason is known".to_owned())))
    }
}

/// Sends the acknowledgements that are due. Returns true if there were any. Only one task at a time may call
/// it: the protocol wants them in order.
///
/// # Errors
/// If the connection breaks.
pub(super) async fn acknowledge(deliveries: &Mutex<Deliveries>, writer: &Writer) -> Result<bool, Error> {
    let due = deliveries.lock().take_due();
    let is_any = !due.is_empty();
    let mut out = Vec::new();
    for (kind, id) in due {
        wire::ack(writer.version, kind, id, Reason::SUCCESS, &mut out);
    }
    writer.write(&out).await?;
    Ok(is_any)
}
