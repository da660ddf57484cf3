//! Compares what arrived with what was sent.

use std::fmt::{self, Display};

use crate::records::{Form, Records};

/// One copy of the output: pieces in each of which the order holds, such as the files of several names.
pub type Replica = Vec<Vec<u8>>;

/// The number of records that a message names.
const SHOWN: usize = 5;

/// The promise of a pair of components for a run that is interrupted and restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// The number of repeated records that is allowed. 0 is "exactly once".
    pub may_repeat: u64,
    /// True if the first occurrences of the records of a partition are in the order in which they were sent.
    pub keeps_order: bool,
}

impl Promise {
    /// Every required record arrives once, in order.
    pub const EXACTLY_ONCE: Self = Self { may_repeat: 0, keeps_order: true };

    /// Every required record arrives, at most `repeats` times more than once in total.
    pub fn at_least_once(repeats: u64) -> Self {
        Self { may_repeat: repeats, keeps_order: true }
    }

    /// The same without a promise of the order.
    pub fn in_any_order(self) -> Self {
        Self { keeps_order: false, ..self }
    }
}

/// Knows which records must arrive.
#[derive(Debug, Clone)]
pub struct Oracle {
    records: Records,
    form: Form,
    /// The number of ranges of equal size into which the numbers are divided. Order is kept within each.
    partitions: u64,
    required: Vec<bool>,
}

/// The records that arrived, compared with those that were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of whole records that arrived.
    pub arrived: u64,
    /// The first required records that did not arrive.
    pub missing: Vec<u64>,
    /// Their number.
    pub missing_count: u64,
    /// The first texts that are no whole record.
    pub torn: Vec<String>,
    /// Their number.
    pub torn_count: u64,
    /// The first records that arrived again.
    pub repeated: Vec<u64>,
    /// How many times a record arrived again.
    pub repeated_count: u64,
    /// The first records that arrived after a later one of their partition.
    pub late: Vec<u64>,
    /// Their number.
    pub late_count: u64,
}

impl Oracle {
    /// Returns an oracle that requires all records.
    pub fn new(records: Records, form: Form, partitions: u64) -> Self {
        let required = vec![true; records.count as usize];
        Self { records, form, partitions: partitions.max(1), required }
    }

    /// Returns an oracle that requires only these records, by number. The others may be missing.
    pub fn requiring(self, required: Vec<bool>) -> Self {
        Self { required, ..self }
    }

    /// Compares the lines of one copy of the output.
    pub fn tally(&self, pieces: &[Vec<u8>]) -> Tally {
        let mut tally = Tally::default();
        let mut seen = vec![false; self.required.len()];
        pieces.iter().for_each(|piece| self.tally_piece(piece, &mut seen, &mut tally));
        let missing =
            self.required.iter().zip(&seen).enumerate().filter(|(_, (must, seen))| **must && !**seen);
        for (number, _) in missing {
            tally.missing_count += 1;
            note(&mut tally.missing, number as u64);
        }
        tally
    }

    fn tally_piece(&self, piece: &[u8], seen: &mut [bool], tally: &mut Tally) {
        let size = self.records.count.div_ceil(self.partitions).max(1);
        let mut last = vec![None; self.partitions as usize];
        for line in lines(piece) {
            let Some(number) = std::str::from_utf8(line).ok().and_then(|l| self.records.number(l, self.form))
            else {
                tally.torn_count += 1;
                note(&mut tally.torn, String::from_utf8_lossy(line).chars().take(120).collect());
                continue;
            };
            tally.arrived += 1;
            if std::mem::replace(&mut seen[number as usize], true) {
                tally.repeated_count += 1;
                note(&mut tally.repeated, number);
                continue;
            }
            let last = &mut last[(number / size) as usize];
            if last.is_some_and(|last| last > number) {
                tally.late_count += 1;
                note(&mut tally.late, number);
            }
            *last = Some(number);
        }
    }

    /// Returns the numbers of the whole records of an output.
    pub fn numbers(&self, replica: &[Vec<u8>]) -> Vec<u64> {
        let number =
            |line| std::str::from_utf8(line).ok().and_then(|line| self.records.number(line, self.form));
        replica.iter().flat_map(|piece| lines(piece)).filter_map(number).collect()
    }
}

impl Tally {
    /// Compares with a promise.
    ///
    /// # Errors
    /// A message with the first records that differ.
    pub fn check(&self, promise: Promise) -> Result<(), String> {
        let kept = self.missing_count == 0
            && self.torn_count == 0
            && self.repeated_count <= promise.may_repeat
            && (self.late_count == 0 || !promise.keeps_order);
        if kept {
            return Ok(());
        }
        Err(format!(
            "{self}; {} may repeat, order {}",
            promise.may_repeat,
            match promise.keeps_order {
                true => "must hold",
                false => "is free",
            }
        ))
    }

    /// Adds the numbers of another tally.
    pub fn add(&mut self, other: &Tally) {
        self.arrived += other.arrived;
        self.missing_count += other.missing_count;
        self.torn_count += other.torn_count;
        self.repeated_count += other.repeated_count;
        self.late_count += other.late_count;
        self.missing.extend(&other.missing);
        self.torn.extend(other.torn.iter().cloned());
        self.repeated.extend(&other.repeated);
        self.late.extend(&other.late);
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} arrived", self.arrived)?;
        let mut part = |name: &str, count: u64, first: &dyn fmt::Debug| match count {
            0 => write!(f, ", none {name}"),
            _ => write!(f, ", {count} {name} (first {first:?})"),
        };
        part("missing", self.missing_count, &self.missing)?;
        part("torn", self.torn_count, &self.torn)?;
        part("repeated", self.repeated_count, &self.repeated)?;
        part("out of order", self.late_count, &self.late)
    }
}

/// The lines of an output. A last line without a line feed is a line: it may be torn.
fn lines(output: &[u8]) -> impl Iterator<Item = &[u8]> {
    let output = output.strip_suffix(b"\n").unwrap_or(output);
    let count = if output.is_empty() { 0 } else { usize::MAX };
    output.split(|byte| *byte == b'\n').take(count)
}

fn note<T>(list: &mut Vec<T>, item: T) {
    if list.len() < SHOWN {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(numbers: &[u64]) -> String {
        numbers.iter().map(|number| Records::new(10).text(*number, Form::Json) + "\n").collect()
    }

    fn pieces(numbers: &[u64]) -> Replica {
        vec![output(numbers).into_bytes()]
    }

    #[test]
    fn each_difference_is_counted() {
        let oracle = Oracle::new(Records::new(10), Form::Json, 1);
        let tally = oracle.tally(&pieces(&[0, 1, 3, 2, 3, 4, 5, 7, 9]));
        assert_eq!(
            (tally.arrived, &tally.missing[..], &tally.repeated[..], &tally.late[..]),
            (9, &[6, 8][..], &[3][..], &[2][..])
        );
        let text = output(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let tally = oracle.tally(&[text.as_bytes()[..text.len() - 2].to_vec()]);
        assert_eq!((tally.torn_count, &tally.missing[..]), (1, &[9][..]));
        assert_eq!(oracle.tally(&[]).missing_count, 10);
    }

    #[test]
    fn order_is_that_of_each_partition() {
        let oracle = Oracle::new(Records::new(10), Form::Json, 2);
        assert_eq!(oracle.tally(&pieces(&[5, 0, 6, 1, 7, 2, 8, 3, 9, 4])).late_count, 0);
        assert_eq!(oracle.tally(&pieces(&[5, 0, 7, 1, 6, 2, 8, 3, 9, 4])).late, [6]);
    }

    #[test]
    fn only_what_is_required_is_missing_and_a_promise_names_what_broke_it() {
        let required = (0..10).map(|number| number < 3).collect();
        let oracle = Oracle::new(Records::new(10), Form::Json, 1).requiring(required);
        let tally = oracle.tally(&pieces(&[0, 1, 1, 2]));
        assert_eq!(tally.check(Promise::at_least_once(1)), Ok(()));
        assert_eq!(
            tally.check(Promise::EXACTLY_ONCE).unwrap_err(),
            "4 arrived, none missing, none torn, 1 repeated (first [1]), none out of order; 0 may repeat, \
             order must hold"
        );
    }
}
