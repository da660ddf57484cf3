//! Where an output leads.

use std::sync::Arc;

use thalweg_record::{Batch, Budget, Outcome};
use thalweg_runtime::{HandOver, Sender, Traffic};

use crate::Error;
use crate::parcel::{Files, Parcel, shares};
use crate::run::edges::Port;
use crate::run::tap::Tappable;

/// The channels that an output leads to: each gets a copy. None for the flow that the output does not have.
#[derive(Clone, Default)]
pub(crate) struct Route {
    pub(crate) messages: Option<Vec<Sender<Batch>>>,
    pub(crate) files: Option<Vec<Sender<Files>>>,
    /// Counts and shows what goes this way.
    pub(crate) port: Option<Arc<Port>>,
}

impl Route {
    pub(crate) fn messages(targets: Vec<Sender<Batch>>) -> Self {
        Self { messages: Some(targets), files: None, port: None }
    }

    pub(crate) fn files(targets: Vec<Sender<Files>>) -> Self {
        Self { messages: None, files: Some(targets), port: None }
    }

    /// Counts and shows what goes this way.
    pub(crate) fn through(self, port: Option<Arc<Port>>) -> Self {
        Self { port, ..self }
    }

    /// Notes content that is about to go this way: the number of its messages or files, and their bytes.
    pub(crate) fn pass(&self, content: &impl Tappable, items: usize, bytes: usize) {
        if let Some(port) = &self.port {
            port.pass(content, items, bytes);
        }
    }

    /// Waits until all targets of messages have room.
    pub(super) async fn room(&self) {
        for target in self.messages.iter().flatten() {
            target.room().await;
        }
    }

    /// True if a target has ended. While there is a source, that is a failure of the target.
    pub(super) fn is_abandoned(&self) -> bool {
        self.messages.iter().flatten().any(Sender::is_abandoned)
            || self.files.iter().flatten().any(Sender::is_abandoned)
    }
}

/// Gives each target the parcel or a copy of it, when all have room. `name` is that of the giver, for the
/// error.
pub(crate) async fn give<P: Parcel>(
    targets: &[Sender<P>],
    parcel: P,
    budget: &Budget,
    traffic: &Arc<Traffic>,
    name: &str,
) -> Result<(), Error> {
    parcel.claim(budget);
    if parcel.items() == 0 {
        // There is nothing to deliver, but its checkpoint must move the partition.
        parcel.settle(Outcome::Filtered);
        return Ok(());
    }
    for target in targets {
        target.room().await;
    }
    // Counts as moving until all targets have it.
    let _pass = traffic.enter().await;
    for (target, parcel) in targets.iter().zip(shares(parcel, targets.len())) {
        let weight = parcel.weight();
        let handed_over = target.hand_over(parcel, weight).map(HandOver::run);
        handed_over.map_err(|_| Error::permanent(format!("the stages after `{name}` have ended")))?;
    }
    Ok(())
}
