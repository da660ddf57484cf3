//! The task that keeps what could not be processed and that no pipeline takes: the dead letters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow_array::{Array, cast::AsArray};
use thalweg_record::{Batch, Content, ERROR_COMPONENT, ERROR_REASON, File, Outcome, Problem};
use thalweg_runtime::{Receiver, blocking};

use super::RunFailure;
use super::checkpoints::LazyStore;
use crate::DeadLetterLimits;
use crate::kept::keep;
use crate::metrics::ComponentMetrics;
use crate::parcel::{Files, Parcel};
use crate::store::{DeadLetter, KeptFile};

/// Keeps dead letters.
pub(super) struct DeadLetters {
    pub(super) messages: Receiver<Batch>,
    pub(super) files: Receiver<Files>,
    pub(super) store: Arc<LazyStore>,
    pub(super) metrics: Arc<ComponentMetrics>,
    /// How many are kept.
    pub(super) limits: DeadLetterLimits,
    /// For each transform, those before it in its pipeline.
    pub(super) before: BTreeMap<Arc<str>, Arc<[Arc<str>]>>,
}

impl DeadLetters {
    pub(super) async fn run(self) -> Result<(), RunFailure> {
        loop {
            tokio::select! {
                Some((_, batch)) = self.messages.take() => {
                    let letters = letters(&batch, &self.before);
                    self.keep(batch, &letters)?;
                }
                Some((_, files)) = self.files.take() => {
                    let letters: Vec<_> = files.iter().map(|file| letter_of(file, &self.before)).collect();
                    self.keep(files, &letters)?;
                }
                else => return Ok(()),
            }
        }
    }

    fn keep<P: Parcel>(&self, parcel: P, letters: &[DeadLetter]) -> Result<(), RunFailure> {
        let start = Instant::now();
        let dropped = blocking(|| self.store.get()?.add_letters(letters, &self.limits))?;
        self.metrics.add_in(parcel.items(), parcel.bytes());
        self.metrics.add_errors(usize::try_from(dropped).unwrap_or(usize::MAX));
        self.metrics.add_busy(start);
        parcel.settle(Outcome::Rejected);
        Ok(())
    }
}

/// Up to this many bytes of a file's content are kept, if the content is nowhere else.
const MOST_KEPT: u64 = 1 << 20;

/// The letter of a file. A file that is not the run's own is not copied: the letter says where it is.
fn letter_of(file: &File, before: &BTreeMap<Arc<str>, Arc<[Arc<str>]>>) -> DeadLetter {
    let problem =
        file.problem().cloned().unwrap_or_else(|| Problem::new("it was rejected for no reason given"));
    let passed = before.get(&problem.component).into_iter().flat_map(|before| before.iter());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = file.origin();
    let address = origin.address.as_deref().map(str::to_owned);
    let mut letter = DeadLetter {
        time_us: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
        passed: passed.map(ToString::to_string).collect(),
        component: problem.component.to_string(),
        reason: problem.reason,
        source: origin.source.to_string(),
        path: origin.path.as_deref().map(|path| path.to_string_lossy().into_owned()).or(address),
        position: None,
        file: Some(KeptFile {
            name: file.name().to_string_lossy().into_owned(),
            size: file.size(),
            mime: file.mime().map(ToString::to_string),
        }),
        payload: None,
        payload_hex: None,
        fields: Vec::new(),
    };
    match file.content() {
        Content::Memory(buffer) if buffer.len() as u64 <= MOST_KEPT => letter.set_payload(buffer),
        // The content goes with the run. A small content is kept in the letter.
        Content::Temporary(temporary) if origin.path.is_none() && file.size() <= MOST_KEPT => {
            if let Ok(content) = std::fs::read(temporary.path()) {
                letter.set_payload(&content);
            }
        }
        Content::Memory(_) | Content::Temporary(_) | Content::Path(_) | Content::Ranges(_) => {}
    }
    letter
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
                file: None,
                payload: None,
                payload_hex: None,
                fields,
            };
            letter.set_payload(batch.payload().value(row));
            letter
        })
        .collect()
}
