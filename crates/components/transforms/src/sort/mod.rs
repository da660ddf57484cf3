//! Sorts all messages of sources that end.
//!
//! Messages are collected in memory (`chunk`), each with a key: bytes whose order is that of the messages
//! (`order`). A chunk that uses up its share of the budget is sorted and written to a temporary file as a run
//! (`run`), and eight runs of a size are merged into one. At the end, the runs and the last chunk are merged
//! (`merge`), and what is merged leaves as fast as the sinks take it.
//!
//! Each batch is copied as it comes, as an Arrow stream. So it takes as much memory as its bytes, keeps no
//! memory of its source, and can be appended to the state directory as it is (`kept`).
//!
//! See docs/decisions/115-sort-keeps-its-input.md.

mod chunk;
mod kept;
mod merge;
mod order;
mod run;
mod running;
mod sorter;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Transform, TransformConfig};
use thalweg_record::INTRINSIC;

use kept::KeptInput;
use order::By;
use running::{Acks, Sorting};
use sorter::Sorter;

/// Sorts the messages of sources that end.
///
/// All messages leave at the end of the input. Those with equal values stay in the order in which they came,
/// and NULL and missing values are last in both directions. Values of different types are in the order
/// booleans, numbers, times (in microseconds), texts, objects. NaN is the greatest number. Texts are compared
/// by their bytes, of which the first 16 KiB count: a text is no number, so give such a field a type.
///
/// An eighth of `memory` is for messages. More are kept in temporary files, which take about twice the size
/// of the messages, and of the fields in `by`, while files are merged. If the disk is full, the run ends with
/// an error, and nothing is lost.
///
/// A merge holds one block of each of its files beside that: up to eight files, and at the end of the input
/// up to seven of each size. A block has at least one message, however large. So with messages that are large
/// beside `memory`, `sort` may use several times `memory`.
///
/// With `--state`, and sources that read their input again, each checkpoint has the messages so far: a run
/// that is killed or stopped leaves them to the next one, which reads only the rest. They take their size in
/// the state directory. With other sources, messages are acknowledged when they are delivered, and at most
/// 65,536 batches wait like this, or fewer if `memory` is less than 64 MiB; more end the run. A broker must
/// send all messages before any is acknowledged, or the input ends early. A run without `--state` that is
/// stopped sends the messages so far, in their order.
///
/// `errors replay` sorts dead letters among themselves, in parts of about a quarter of `memory`. The messages
/// that the state has stay there.
///
/// Messages have no `meta.position` afterwards. Those that leave together have the `meta.time` of the first
/// of them. Messages of different paths, or with different fields, are in different blocks, and leave in
/// different batches. If they alternate, each message has a block of its own, of about 1 KB with a few fields
/// and 13 KB with many: the run is much slower, and the files take far more disk than the input.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sort {
    /// The fields to sort by, the most important first: `[date, { amount: desc }]`. A field alone is sorted
    /// with the smallest value first.
    by: List<By, 1>,
}

impl Component for Sort {
    const NAME: &'static str = "sort";
    const EXAMPLE: &'static str = r#"
sources:
  orders: { generate: { lines: ["item=nail price=2", "item=saw price=30", "item=glue price=7"] } }
pipelines:
  main:
    from: orders
    transforms:
      - parse_logfmt: { types: { price: int } }
      - sort: { by: [{ price: desc }] }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let in_text = self.by.iter().filter_map(By::directed_text);
        let mut mistakes: Vec<Mistake> = in_text
            .map(|(field, direction)| {
                let message = format!("`by` has the direction of `{field}` in the name of the field.");
                Mistake::new("by", message).help(format!("Write `{{ {field}: {direction} }}`."))
            })
            .collect();
        if self.by.iter().any(|by| by.field().is_none()) {
            let mistake = Mistake::new("by", "An element of `by` has one field, perhaps with its direction.");
            mistakes.push(
                mistake
                    .help("Write for example `by: [date, { amount: desc }]`: the order of the list counts."),
            );
        }
        mistakes
    }
}

impl Sort {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.by.iter().filter_map(By::field).map(|(name, _)| name)
    }

    fn sorting(&self, context: &Context) -> Result<Sorting, Error> {
        let fields = self.by.iter().filter_map(By::field);
        let sorter = Sorter::new(fields, &context.memory, context.temporary.clone())?;
        let journal = context.journal.clone().filter(|_| context.resumes && context.rereads);
        let acks = match journal {
            Some(journal) => Acks::Checkpoint(Box::new(KeptInput::new(journal, &context.name))),
            None if context.starts_over && !context.resumes => Acks::AtOnce,
            None => Acks::Output,
        };
        Ok(Sorting::new(&context.name, sorter, acks, context.batch_bytes, context.memory.budget().limit()))
    }
}

impl TransformConfig for Sort {
    fn names_intrinsic(&self) -> bool {
        self.names().any(|name| INTRINSIC.contains(&name))
    }

    fn fields(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn replays_apart(&self) -> bool {
        true
    }

    fn needs_end(&self) -> bool {
        true
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(Box::new(self.sorting(context)?))
    }
}
