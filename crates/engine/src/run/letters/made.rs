//! Makes dead letters of what was rejected.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{Array, cast::AsArray};
use thalweg_beneath::Links;
use thalweg_record::{Batch, Content, ERROR_COMPONENT, ERROR_REASON, File, Problem};

use crate::graph::Passed;
use crate::kept::keep;
use crate::store::{DeadLetter, KeptFile};

/// For each transform, those before it in its pipeline.
pub(in crate::run) type Before = BTreeMap<Arc<str>, Passed>;

/// Up to this many bytes of a file's content are kept, if the content is nowhere else.
const MOST_KEPT: u64 = 1 << 20;

/// The letter of a file. A file that is not the run's own is not copied: the letter says where it is.
pub(super) fn of_file(file: &File, before: &Before) -> DeadLetter {
    let problem =
        file.problem().cloned().unwrap_or_else(|| Problem::new("it was rejected for no reason given"));
    let passed = before.get(&problem.component).into_iter().flat_map(Passed::names);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = file.origin();
    let beneath = origin.beneath.as_ref().filter(|beneath| beneath.links() != Links::Followed);
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
            beneath: beneath.map(|beneath| beneath.folder().to_string_lossy().into_owned()),
            follows_inside: beneath.is_some_and(|beneath| beneath.links() == Links::Inside),
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

/// The letters of some rows of a batch.
pub(super) fn of_rows(batch: &Batch, rows: Range<usize>, before: &Before) -> Vec<DeadLetter> {
    let text = |name: &str, row: usize| {
        let column = batch.fields().column_by_name(name);
        let column = column.and_then(|column| column.as_string_opt::<i32>());
        column.filter(|column| column.is_valid(row)).map(|column| column.value(row).to_owned())
    };
    let meta = batch.meta();
    let fields = keep(&batch.fields().slice(rows.start, rows.len()));
    rows.zip(fields)
        .map(|(row, fields)| {
            let component = text(ERROR_COMPONENT, row).unwrap_or_default();
            let passed = before.get(component.as_str()).into_iter().flat_map(Passed::names);
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
