//! The task that keeps what could not be processed and that no pipeline takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Array, cast::AsArray};
use thalweg_record::{Batch, ERROR_COMPONENT, ERROR_REASON, Outcome, Parcel};
use thalweg_runtime::{Receiver, blocking};

use crate::kept::keep;
use crate::metrics::ComponentMetrics;
use crate::store::DeadLetter;
use crate::{Error, LetterBounds};

use super::LazyStore;

pub(super) struct Task {
    pub(super) input: Receiver<Parcel>,
    pub(super) store: Arc<LazyStore>,
    pub(super) metrics: Arc<ComponentMetrics>,
    /// How many are kept.
    pub(super) bounds: LetterBounds,
    /// For each transform, those before it in its pipeline.
    pub(super) before: BTreeMap<Arc<str>, Arc<[Arc<str>]>>,
}

impl Task {
    pub(super) async fn run(self) -> Result<(), Error> {
        while let Some((_, Parcel::Messages(batch))) = self.input.take().await {
            let start = Instant::now();
            let letters = letters(&batch, &self.before);
            let dropped = blocking(|| self.store.get()?.add_letters(&letters, &self.bounds))?;
            self.metrics.add_in(batch.rows(), batch.payload_bytes());
            self.metrics.add_errors(usize::try_from(dropped).unwrap_or(usize::MAX));
            self.metrics.add_busy(start);
            batch.settle(Outcome::Rejected);
        }
        Ok(())
    }
}

fn letters(batch: &Batch, before: &BTreeMap<Arc<str>, Arc<[Arc<str>]>>) -> Vec<DeadLetter> {
    let text = |name: &str, row: usize| {
        let column = batch.fields().column_by_name(name);
        let column = column.and_then(|column| column.as_string_opt::<i32>());
        column.filter(|column| column.is_valid(row)).map(|column| column.value(row).to_owned())
    };
    let meta = batch.meta();
    let fields = keep(batch.fields());
    fields
        .into_iter()
        .enumerate()
        .map(|(row, fields)| {
            let component = text(ERROR_COMPONENT, row).unwrap_or_default();
            let passed = before.get(component.as_str()).into_iter().flat_map(|before| before.iter());
            let mut letter = DeadLetter {
                time_us: meta.time_us,
                passed: passed.map(ToString::to_string).collect(),
                component,
                reason: text(ERROR_REASON, row).unwrap_or_default(),
                source: meta.source.to_string(),
                path: meta.path.as_deref().map(str::to_owned),
                position: batch.positions().map(|positions| positions.value(row)),
                payload: None,
                payload_hex: None,
                fields,
            };
            letter.set_payload(batch.payload().value(row));
            letter
        })
        .collect()
}
