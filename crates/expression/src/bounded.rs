//! Functions whose results may be far larger than their arguments, with a bound.
//!
//! A length or a count may come from a message. `lpad(name, n)` with the largest `n` asks for more memory
//! than there is, and a failed allocation ends the process. Each function here is DataFusion's, but it is
//! called only if the results fit. The bounds are parts of the memory: a message with a longer result fails,
//! and a batch with larger results is evaluated in smaller parts. Large results are made by one worker at a
//! time.
//!
//! The rejected alternative is a limit on the process's memory: it would end the run, not the message.

use std::cell::RefCell;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray, cast::AsArray, types::Int64Type};
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use regex::Regex;
use thalweg_record::{Budget, LONGEST_TEXT, Turn, size_text};

/// Results of this size are made without a turn, in bytes. With more memory, they may be larger: ordinary
/// batches must not wait for one another.
const FREE: usize = 512 << 10;

/// The maximum sizes of results, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    budget: Option<Budget>,
    /// Of one function for one message.
    longest: usize,
    /// Of all functions for one message.
    most_of_one: usize,
    /// Of all functions for a batch.
    most: usize,
    /// Of all functions without a turn.
    free: usize,
}

impl Bounds {
    /// The bounds without a budget.
    pub(crate) const fn largest() -> Self {
        let longest = LONGEST_TEXT;
        Self { budget: None, longest, most_of_one: 8 * longest, most: 16 * longest, free: FREE }
    }

    /// The bounds with a budget.
    pub(crate) fn within(budget: &Budget) -> Self {
        let longest = budget.longest_text();
        let most = (budget.limit() / 8).max(longest);
        let free = (budget.limit() / 128).clamp(FREE, 4 * FREE);
        Self { budget: Some(budget.clone()), longest, most_of_one: budget.most_values(), most, free }
    }
}

/// The present evaluation.
struct Now {
    bounds: Bounds,
    /// The size of all results so far, in bytes.
    made: usize,
    /// Held if they are large.
    turn: Option<Turn>,
}

thread_local! {
    static NOW: RefCell<Now> =
        const { RefCell::new(Now { bounds: Bounds::largest(), made: 0, turn: None }) };
}

/// Evaluates within bounds, beside results of a size that is already held. (DataFusion's functions get no
/// context in which the bounds could be passed.)
pub(crate) fn within<T>(bounds: &Bounds, held: usize, evaluate: impl FnOnce() -> T) -> T {
    struct Before(Now);
    impl Drop for Before {
        fn drop(&mut self) {
            NOW.with_borrow_mut(|now| std::mem::swap(now, &mut self.0));
        }
    }
    let now = Now { bounds: bounds.clone(), made: held, turn: None };
    let _before = Before(NOW.replace(now));
    evaluate()
}

/// Returns the size of the results so far, in bytes.
pub(crate) fn made() -> usize {
    NOW.with_borrow(|now| now.made)
}

/// Forgets results that are no longer held.
pub(crate) fn set_made(bytes: usize) {
    NOW.with_borrow_mut(|now| now.made = bytes);
}

/// Returns the maximum size of the results for the present batch, in bytes.
pub(crate) fn most() -> usize {
    NOW.with_borrow(|now| now.bounds.most)
}

/// Returns the reason for failing if the results for the present batch are too large together.
pub(crate) fn too_many() -> String {
    format!("the results for a batch have more than {}", size_text(most()))
}

/// Counts a result for one of `rows` messages, made of a text of `given` bytes.
fn add(bytes: usize, given: usize, rows: usize) -> Result<()> {
    let longest = NOW.with_borrow(|now| now.bounds.longest).max(given.min(LONGEST_TEXT));
    if bytes > longest {
        return Err(failed(&format!("the result has more than {}", size_text(longest))));
    }
    add_all(bytes, rows)
}

/// Counts results for `rows` messages.
fn add_all(bytes: usize, rows: usize) -> Result<()> {
    let reason = NOW.with_borrow_mut(|now| {
        now.made = now.made.saturating_add(bytes);
        let (most, whose) = match rows {
            0 | 1 => (now.bounds.most_of_one, "a message"),
            _ => (now.bounds.most, "a batch"),
        };
        if now.made > most {
            return Some(format!("the results for {whose} have more than {}", size_text(most)));
        }
        if now.made > now.bounds.free && now.turn.is_none() {
            now.turn = now.bounds.budget.as_ref().map(Budget::turn);
        }
        None
    });
    reason.map_or(Ok(()), |reason| Err(failed(&reason)))
}

/// The sizes of results that are about to be made. Those of short results are counted together.
pub(crate) struct Sizes {
    rows: usize,
    short: usize,
}

impl Sizes {
    /// Begins to count the results for `rows` messages.
    pub(crate) fn of(rows: usize) -> Self {
        Self { rows, short: 0 }
    }

    /// Adds a result. `given` returns the size of the different texts of which it is made.
    pub(crate) fn add(&mut self, bytes: usize, given: impl FnOnce() -> usize) -> Result<()> {
        if bytes <= FREE {
            self.short = self.short.saturating_add(bytes);
            return Ok(());
        }
        add(bytes, given(), self.rows)
    }

    /// Counts the short results.
    pub(crate) fn end(self) -> Result<()> {
        add_all(self.short, self.rows)
    }
}

/// The most pairs of characters that `levenshtein` compares. Its time is proportional to them.
const MOST_PAIRS: usize = 64 << 20;

/// How a result grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// `lpad(text, length, fill)`
    Pad,
    /// `repeat(text, count)`
    Repeat,
    /// `replace(text, from, to)`
    Replace,
    /// `regexp_replace(text, pattern, to, flags)`
    ReplacePattern,
    /// `concat(text, text, ...)`; the text of `overlay` has all of its two texts at most.
    Join,
    /// `concat_ws(separator, text, text, ...)`
    JoinSeparated,
    /// `encode(text, encoding)`
    Encode,
    /// `levenshtein(text, text)`: not in size but in time.
    Compare,
}

const GROWING: [(&str, Growth); 10] = [
    ("concat", Growth::Join),
    ("concat_ws", Growth::JoinSeparated),
    ("encode", Growth::Encode),
    ("overlay", Growth::Join),
    ("lpad", Growth::Pad),
    ("rpad", Growth::Pad),
    ("repeat", Growth::Repeat),
    ("replace", Growth::Replace),
    ("regexp_replace", Growth::ReplacePattern),
    ("levenshtein", Growth::Compare),
];

/// Returns the function with a bound, if its results can be too large.
pub(crate) fn bounded(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    match GROWING.iter().find(|(name, _)| *name == function.name()) {
        Some((_, growth)) => Arc::new(ScalarUDF::from(Bounded { function, growth: *growth })),
        None => function,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    function: Arc<ScalarUDF>,
    growth: Growth,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.function.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let texts = |at: usize| args.args.get(at).map(|arg| texts(arg, rows)).transpose();
        match self.growth {
            Growth::Pad | Growth::Repeat => {
                let (Some(given), Some(counts)) = (texts(0)?, args.args.get(1)) else {
                    return self.call(args);
                };
                let counts = counts.to_array(rows)?;
                let fill = texts(2)?;
                let clamped = (0..rows)
                    .map(|row| {
                        let count = count(&counts, row)?;
                        let sizes = sizes(
                            self.growth,
                            value(&given, row),
                            fill.as_ref().map(|fill| value(fill, row)),
                            count,
                        );
                        add(sizes.1, value(&given, row).map_or(0, str::len), rows)?;
                        Ok(sizes.0)
                    })
                    .collect::<Result<Int64Array>>()?;
                // A negative or meaningless count may make the function reserve memory that it does not need.
                if let Some(counts) = args.args.get_mut(1) {
                    *counts = ColumnarValue::Array(Arc::new(clamped));
                }
            }
            Growth::Replace | Growth::ReplacePattern => {
                let (Some(given), Some(from), Some(to)) = (texts(0)?, texts(1)?, texts(2)?) else {
                    return self.call(args);
                };
                let flags = texts(3)?;
                let mut pattern = Pattern::default();
                for row in 0..rows {
                    let (Some(given), Some(from), Some(to)) =
                        (value(&given, row), value(&from, row), value(&to, row))
                    else {
                        continue;
                    };
                    let size = match self.growth {
                        Growth::Replace => replaced(given, from, to),
                        _ => pattern.replaced(given, from, to, flags.as_ref().and_then(|f| value(f, row))),
                    };
                    add(size, given.len(), rows)?;
                }
            }
            Growth::Join | Growth::JoinSeparated | Growth::Encode => {
                let joined = joined(self.growth, &args.args, rows);
                let mut sizes = Sizes::of(rows);
                for (all, distinct) in joined {
                    sizes.add(all, || distinct)?;
                }
                sizes.end()?;
            }
            Growth::Compare => {
                let (Some(left), Some(right)) = (texts(0)?, texts(1)?) else { return self.call(args) };
                for (left, right) in left.iter().zip(&right) {
                    let length = |text: Option<&str>| text.map_or(0, |text| text.chars().count());
                    if length(left).saturating_mul(length(right)) > MOST_PAIRS {
                        return Err(failed(
                            "the texts are too long to be compared: 8192 characters each are not",
                        ));
                    }
                }
            }
        }
        self.call(args)
    }
}

impl Bounded {
    fn call(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.function.invoke_with_args(args)
    }
}

fn failed(reason: &str) -> DataFusionError {
    DataFusionError::Execution(reason.to_owned())
}

fn texts(argument: &ColumnarValue, rows: usize) -> Result<StringViewArray> {
    let texts = cast(&argument.to_array(rows)?, &DataType::Utf8View)?;
    Ok(texts.as_string_view().clone())
}

fn value(texts: &StringViewArray, row: usize) -> Option<&str> {
    (row < texts.len() && texts.is_valid(row)).then(|| texts.value(row))
}

fn count(counts: &ArrayRef, row: usize) -> Result<Option<i64>> {
    let counts =
        counts.as_primitive_opt::<Int64Type>().ok_or_else(|| failed("the count is not a whole number"))?;
    Ok((row < counts.len() && counts.is_valid(row)).then(|| counts.value(row)))
}

/// Returns the count that has the same result and reserves no memory in vain, and the size of the result.
/// `fill` is the text to pad with; `Some(None)` is NULL.
fn sizes(
    growth: Growth,
    text: Option<&str>,
    fill: Option<Option<&str>>,
    count: Option<i64>,
) -> (Option<i64>, usize) {
    let Some(given) = count else { return (None, 0) };
    let (Some(text), Some(fill)) = (text, fill.unwrap_or(Some(" "))) else { return (Some(0), 0) };
    let count = usize::try_from(given.max(0)).unwrap_or(usize::MAX);
    let (count, size) = match growth {
        Growth::Pad if fill.is_empty() => (count.min(text.len()), text.len()),
        Growth::Pad => {
            let width = if fill.is_ascii() { 1 } else { 4 };
            let missing = count.saturating_sub(text.chars().count());
            (count, missing.saturating_mul(width).saturating_add(text.len()))
        }
        _ if text.is_empty() => (0, 0),
        _ => (count, text.len().saturating_mul(count)),
    };
    (Some(i64::try_from(count).unwrap_or(i64::MAX)), size)
}

/// Returns for each message an upper bound for the size of a text that is made of all arguments, and the size
/// of the different ones.
fn joined(growth: Growth, args: &[ColumnarValue], rows: usize) -> Vec<(usize, usize)> {
    let mut joined = vec![(0_usize, 0_usize); rows];
    for (at, arg) in args.iter().enumerate() {
        let times = match (growth, at) {
            (Growth::JoinSeparated, 0) => args.len().saturating_sub(2),
            (Growth::Encode, 0) => 2,
            _ => 1,
        };
        let is_new = !args.iter().take(at).any(|other| is_same(arg, other));
        let add = |(all, distinct): &mut (usize, usize), size: usize| {
            *all = all.saturating_add(size.saturating_mul(times));
            *distinct += if is_new { size } else { 0 };
        };
        match arg {
            ColumnarValue::Scalar(value) => {
                let size = value.try_as_str().flatten().map_or(0, str::len);
                joined.iter_mut().for_each(|sums| add(sums, size));
            }
            ColumnarValue::Array(values) => {
                joined.iter_mut().enumerate().for_each(|(row, sums)| add(sums, length(values, row)));
            }
        }
    }
    joined
}

/// True if two arguments are the same column.
fn is_same(one: &ColumnarValue, other: &ColumnarValue) -> bool {
    match (one, other) {
        (ColumnarValue::Array(one), ColumnarValue::Array(other)) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

/// Returns the size of a text or binary value in bytes.
fn length(values: &dyn Array, row: usize) -> usize {
    // The length of a view is its first 32 bits.
    let view = |view: Option<&u128>| view.map_or(0, |view| *view as u32 as usize);
    match values.data_type() {
        _ if row >= values.len() || values.is_null(row) => 0,
        DataType::Utf8View => view(values.as_string_view().views().get(row)),
        DataType::BinaryView => view(values.as_binary_view().views().get(row)),
        DataType::Utf8 => values.as_string::<i32>().value_length(row) as usize,
        DataType::LargeUtf8 => values.as_string::<i64>().value_length(row) as usize,
        DataType::Binary => values.as_binary::<i32>().value_length(row) as usize,
        DataType::LargeBinary => values.as_binary::<i64>().value_length(row) as usize,
        _ => 0,
    }
}

/// Returns the size of a text after a replacement, in bytes, or an upper bound for it.
fn replaced(text: &str, from: &str, to: &str) -> usize {
    if to.len() <= from.len() {
        return text.len();
    }
    let size = |count: usize| count.saturating_mul(to.len() - from.len()).saturating_add(text.len());
    match size(text.len() / from.len().max(1) + 1) {
        most if most <= FREE => most,
        _ => size(text.matches(from).count()),
    }
}

/// The last pattern, compiled: mostly, all messages have the same.
#[derive(Default)]
struct Pattern {
    text: String,
    compiled: Option<Regex>,
}

impl Pattern {
    /// Returns an upper bound for the size of a text after a replacement, in bytes.
    fn replaced(&mut self, text: &str, pattern: &str, to: &str, flags: Option<&str>) -> usize {
        let flags = flags.unwrap_or_default();
        // Each reference to a group may insert the whole match; all matches together are the text.
        let references = to.bytes().filter(|byte| matches!(byte, b'\\' | b'$')).count();
        let size = |count: usize, matched: usize| {
            let inserted = matched.saturating_mul(references);
            count.saturating_mul(to.len()).saturating_add(inserted).saturating_add(text.len())
        };
        let most = if flags.contains('g') { text.len() + 1 } else { 1 };
        match size(most, text.len()) {
            size if size <= FREE => size,
            _ => {
                let (count, matched) = self.count(text, pattern, flags, most);
                size(count, matched) - matched
            }
        }
    }

    /// Returns the number of the first `most` matches, and their size in bytes.
    fn count(&mut self, text: &str, pattern: &str, flags: &str, most: usize) -> (usize, usize) {
        let inline: String = flags.chars().filter(|flag| *flag != 'g').collect();
        let pattern = if inline.is_empty() { pattern.to_owned() } else { format!("(?{inline}){pattern}") };
        if self.compiled.is_none() || self.text != pattern {
            // A wrong pattern fails in the function itself, with its reason.
            self.compiled = Regex::new(&pattern).ok();
            self.text = pattern;
        }
        let matches = self.compiled.iter().flat_map(|pattern| pattern.find_iter(text)).take(most);
        matches.fold((0, 0), |(count, bytes), found| (count + 1, bytes + found.len()))
    }
}
