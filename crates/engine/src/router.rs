//! Distributes messages among several targets: `round_robin`, `random`, `by_key`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array, cast::AsArray, types::Int64Type};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use thalweg_record::{Batch, INTRINSIC};
use xxhash_rust::xxh3::xxh3_64;

use crate::component::{Transform, TransformConfig};
use crate::{Context, Error, Outputs};

/// The rule by which a message's target is chosen.
#[derive(Debug, Clone)]
pub enum Way {
    /// Each message goes to the next output in turn. The workers of a segment share the turn.
    RoundRobin,
    /// Each message goes to a random output.
    Random,
    /// Messages with equal values of this column go to the same output.
    ByKey(String),
}

/// Splits batches among its outputs. The planner makes it; configurations do not name it.
#[derive(Debug)]
pub struct Router {
    way: Way,
    outputs: usize,
    turn: Arc<AtomicUsize>,
}

impl Router {
    /// Creates a router with `outputs` outputs, of which there is at least one.
    pub fn new(way: Way, outputs: usize) -> Self {
        Self { way, outputs: outputs.max(1), turn: Arc::default() }
    }

    /// The kind of its node in the graph.
    pub fn kind(&self) -> &'static str {
        match self.way {
            Way::RoundRobin => "round_robin",
            Way::Random => "random",
            Way::ByKey(_) => "by_key",
        }
    }
}

impl TransformConfig for Router {
    fn outputs(&self) -> Vec<String> {
        (0..self.outputs).map(|number| number.to_string()).collect()
    }

    fn names_intrinsic(&self) -> bool {
        matches!(&self.way, Way::ByKey(key) if INTRINSIC.contains(&key.as_str()))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let rows = vec![Vec::new(); self.outputs];
        Ok(Box::new(Running { way: self.way.clone(), turn: self.turn.clone(), rows }))
    }
}

struct Running {
    way: Way,
    turn: Arc<AtomicUsize>,
    /// The rows for each output. Kept between batches to reuse the memory.
    rows: Vec<Vec<u32>>,
}

impl Transform for Running {
    fn apply(&mut self, mut batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let outputs = self.rows.len();
        let rows = batch.rows();
        self.rows.iter_mut().for_each(Vec::clear);
        match &self.way {
            Way::RoundRobin => {
                let turn = self.turn.fetch_add(rows, Ordering::Relaxed);
                (0..rows).for_each(|row| self.rows[turn.wrapping_add(row) % outputs].push(row as u32));
            }
            Way::Random => {
                (0..rows).for_each(|row| self.rows[fastrand::usize(..outputs)].push(row as u32));
            }
            Way::ByKey(key) => {
                let column = batch.column(key);
                let options = FormatOptions::default();
                let hash = column.as_ref().map(|column| hasher(column, &options)).transpose()?;
                for row in 0..rows {
                    let hash = hash.as_ref().map_or(0, |hash| hash(row));
                    self.rows[(hash % outputs as u64) as usize].push(row as u32);
                }
            }
        }
        let last = self.rows.iter().rposition(|rows| !rows.is_empty());
        for (output, rows) in self.rows.iter().enumerate() {
            if rows.is_empty() {
                continue;
            }
            let part = if Some(output) == last {
                let ack = batch.take_ack();
                let mut part = batch.share();
                *part.ack_mut() = ack;
                part
            } else {
                batch.share()
            };
            if let Some(part) = part.select(rows)? {
                out.send_to(output, part);
            }
        }
        Ok(())
    }
}

/// Returns a function from a row of the column to its hash. Equal values have equal hashes, also across types
/// if their text is equal. NULL has a hash of its own.
fn hasher<'a>(
    column: &'a dyn Array,
    options: &'a FormatOptions<'a>,
) -> Result<Box<dyn Fn(usize) -> u64 + 'a>, Error> {
    let hash: Box<dyn Fn(usize) -> u64 + 'a> = match column.data_type() {
        DataType::Utf8View => {
            let column = column.as_string_view();
            Box::new(move |row| xxh3_64(column.value(row).as_bytes()))
        }
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            Box::new(move |row| xxh3_64(column.value(row).as_bytes()))
        }
        DataType::Int64 => {
            let column = column.as_primitive::<Int64Type>();
            Box::new(move |row| of_number(column.value(row)))
        }
        _ => {
            let formatter = ArrayFormatter::try_new(column, options)?;
            Box::new(move |row| xxh3_64(formatter.value(row).to_string().as_bytes()))
        }
    };
    Ok(Box::new(move |row| if column.is_null(row) { 0 } else { hash(row) }))
}

/// Returns the hash of a number as text, so that the number 7 and the text `7` have the same target.
fn of_number(value: i64) -> u64 {
    let mut text = [0; 20];
    let mut at = text.len();
    let mut rest = value.unsigned_abs();
    while at > 1 {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        text[at] = b'-';
    }
    xxh3_64(&text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Output, testing};
    use thalweg_record::Outcome;

    fn route(way: Way, payloads: &[&str]) -> Vec<Vec<String>> {
        let mut router = Router::new(way, 2).build(&testing::context()).unwrap();
        let mut out = Outputs::new("test".into());
        router.apply(testing::batch(payloads), &mut out).unwrap();
        let mut parts = vec![Vec::new(), Vec::new()];
        for (output, batch) in out.take() {
            if let Output::Named(number) = output {
                parts[number].extend(testing::payloads(&batch));
            }
            batch.settle(Outcome::Delivered);
        }
        parts
    }

    #[test]
    fn round_robin_gives_each_message_to_the_next() {
        assert_eq!(route(Way::RoundRobin, &["a", "b", "c"]), [vec!["a", "c"], vec!["b"]]);
    }

    #[test]
    fn equal_keys_go_the_same_way() {
        let parts = route(Way::ByKey("payload".into()), &["x", "y", "z", "x", "y", "z", "w", "v", "u"]);
        for value in ["x", "y", "z"] {
            assert_eq!(parts.iter().filter(|part| part.iter().any(|p| p == value)).count(), 1);
        }
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 9);
    }

    #[test]
    fn a_key_with_the_name_of_an_intrinsic_column_is_that_of_each_message() {
        let names = |key: &str| Router::new(Way::ByKey(key.into()), 2).names_intrinsic();
        assert!(names("payload") && names("meta.path") && !names("host"));
        assert!(!Router::new(Way::Random, 2).names_intrinsic());
    }

    #[test]
    fn a_number_and_its_text_go_the_same_way() {
        for value in [0, 7, -7, 1234567890, i64::MAX, i64::MIN] {
            let number = arrow_array::Int64Array::from(vec![value]);
            let text = arrow_array::StringArray::from(vec![value.to_string()]);
            let options = FormatOptions::default();
            let hash = |column: &dyn Array| hasher(column, &options).unwrap()(0);
            assert_eq!(hash(&number), hash(&text), "{value}");
        }
    }
}
