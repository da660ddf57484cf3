//! Functions whose results may be far larger than their arguments, with a bound.
//!
//! A length or a count may come from a message. `lpad(name, n)` with the largest `n` asks for more memory
//! than there is, and a failed allocation ends the process. Each function here is DataFusion's, but it is
//! called only if the results fit: a message whose result would have more than [`LONGEST`] bytes fails, and a
//! batch whose results would have more than [`MOST`] is evaluated in smaller parts.
//!
//! The rejected alternative is a limit on the process's memory: it would end the run, not the message.

use std::cell::Cell;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray, cast::AsArray, types::Int64Type};
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use regex::Regex;

/// The maximum size of the result for one message, in bytes.
pub(crate) const LONGEST: usize = 16 << 20;

/// The maximum size of the results for one batch, in bytes. An evaluator may have a lower one.
pub(crate) const MOST: usize = 256 << 20;

thread_local! {
    /// The maximum size of the results for the present batch, in bytes.
    static MOST_NOW: Cell<usize> = const { Cell::new(MOST) };
}

/// Evaluates with a maximum size of the results for a batch, in bytes. (DataFusion's functions get no context
/// in which it could be passed.)
pub(crate) fn at_most<T>(most: usize, evaluate: impl FnOnce() -> T) -> T {
    struct Before(usize);
    impl Drop for Before {
        fn drop(&mut self) {
            MOST_NOW.set(self.0);
        }
    }
    let _before = Before(MOST_NOW.replace(most));
    evaluate()
}

/// Returns the maximum size of the results for the present batch, in bytes.
pub(crate) fn most() -> usize {
    MOST_NOW.get()
}

/// Returns the reason for failing if the results for the present batch are too large together.
pub(crate) fn too_many() -> String {
    format!("the results for a batch have more than {} MiB", most() >> 20)
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
    /// `levenshtein(text, text)`: not in size but in time.
    Compare,
}

const GROWING: [(&str, Growth); 6] = [
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
        let most = most();
        let mut total = 0usize;
        let mut add = |bytes: usize| match total.checked_add(bytes) {
            _ if bytes > LONGEST => Err(failed("the result has more than 16 MiB")),
            Some(sum) if sum <= most || rows <= 1 => {
                total = sum;
                Ok(())
            }
            _ => Err(failed(&too_many())),
        };
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
                        add(sizes.1)?;
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
                    add(match self.growth {
                        Growth::Replace => replaced(given, from, to),
                        _ => pattern.replaced(given, from, to, flags.as_ref().and_then(|f| value(f, row))),
                    })?;
                }
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

/// Returns the size of a text after a replacement, in bytes.
fn replaced(text: &str, from: &str, to: &str) -> usize {
    let most = text.len() / from.len().max(1) + 1;
    let size = |count: usize| count.saturating_mul(to.len()).saturating_add(text.len());
    match size(most) {
        size if size <= LONGEST => size,
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
        let size = |count: usize| {
            let matches = text.len().saturating_mul(references + 1);
            count.saturating_mul(to.len()).saturating_add(matches)
        };
        let most = if flags.contains('g') { text.len() + 1 } else { 1 };
        match size(most) {
            size if size <= LONGEST => size,
            _ => size(self.count(text, pattern, flags).min(most)),
        }
    }

    fn count(&mut self, text: &str, pattern: &str, flags: &str) -> usize {
        let inline: String = flags.chars().filter(|flag| *flag != 'g').collect();
        let pattern = if inline.is_empty() { pattern.to_owned() } else { format!("(?{inline}){pattern}") };
        if self.compiled.is_none() || self.text != pattern {
            // A wrong pattern fails in the function itself, with its reason.
            self.compiled = Regex::new(&pattern).ok();
            self.text = pattern;
        }
        self.compiled.as_ref().map_or(0, |pattern| pattern.find_iter(text).count())
    }
}
