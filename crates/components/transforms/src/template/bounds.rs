//! Bounds for what a template may do with one message.
//!
//! A width, a count or the end of a loop may come from the message. A failed allocation would end the
//! process, and a loop that never ends would hold its worker. So a template has a bounded number of steps,
//! its text has a bounded size, and so has the result of each filter that enlarges its input.

use std::io;

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

/// The maximum number of steps for one message. A step of a loop takes about five.
const STEPS: u64 = 5_000_000;

/// The maximum size of the text for one message, in bytes. Expressions have the same limit.
pub(super) const LONGEST: usize = 16 << 20;

/// The maximum size of the texts for one batch, in bytes.
const MOST: usize = 256 << 20;

/// The most groups or items that `slice` and `batch` make.
const MOST_ITEMS: usize = 1 << 20;

/// The arguments of a filter, with and without names.
type Arguments = Rest<ValueOrKwargs>;

/// Sets the bounds in an environment.
pub(super) fn set(environment: &mut Environment<'static>) {
    environment.set_fuel(Some(STEPS));
    // The filters of the library stay reachable by names that no template can write.
    environment.add_filter("bounded indent", filters::indent);
    environment.add_filter("indent", |state: &mut State, text: Value, rest: Arguments| {
        let lines = text.as_str().map_or(1, |text| text.split('\n').count());
        check(largest(&rest).saturating_mul(lines).saturating_add(size(&text)), LONGEST)?;
        pass(state, "bounded indent", text, rest)
    });
    environment.add_filter("bounded format", filters::format);
    environment.add_filter("format", |state: &mut State, text: Value, rest: Arguments| {
        let format = text.as_str().unwrap_or_default();
        let widths = format.split(|c: char| !c.is_ascii_digit());
        let widths = widths.filter(|digits| !digits.is_empty());
        let widths = widths.map(|digits| digits.parse().unwrap_or(usize::MAX));
        // `*` takes the width from the values.
        let given = if format.contains('*') { largest(&rest).saturating_mul(rest.len()) } else { 0 };
        check(widths.fold(given, usize::saturating_add), LONGEST)?;
        pass(state, "bounded format", text, rest)
    });
    environment.add_filter("bounded replace", filters::replace);
    environment.add_filter("replace", |state: &mut State, text: Value, rest: Arguments| {
        let (from, to) = (rest.first().map(|from| from.to_string()), rest.get(1).map_or(0, |to| size(to)));
        let count = text.to_string().matches(&from.unwrap_or_default()).count();
        check(count.saturating_mul(to).saturating_add(size(&text)), LONGEST)?;
        pass(state, "bounded replace", text, rest)
    });
    environment.add_filter("bounded tojson", filters::tojson);
    environment.add_filter("tojson", |state: &mut State, value: Value, rest: Arguments| {
        check(largest(&rest), 64)?;
        pass(state, "bounded tojson", value, rest)
    });
    environment.add_filter("bounded slice", filters::slice);
    environment.add_filter("slice", |state: &mut State, value: Value, rest: Arguments| {
        check(largest(&rest), MOST_ITEMS)?;
        pass(state, "bounded slice", value, rest)
    });
    environment.add_filter("bounded batch", filters::batch);
    environment.add_filter("batch", |state: &mut State, value: Value, rest: Arguments| {
        check(largest(&rest), MOST_ITEMS)?;
        pass(state, "bounded batch", value, rest)
    });
}

fn pass(state: &mut State, filter: &str, value: Value, rest: Arguments) -> Result<Value, Error> {
    let arguments: Vec<Value> = std::iter::once(value).chain(rest.into_values()).collect();
    state.apply_filter(filter, &arguments)
}

fn check(size: usize, limit: usize) -> Result<(), Error> {
    if size <= limit {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, "the result is too large"))
}

fn size(value: &Value) -> usize {
    value.as_str().map_or_else(|| value.to_string().len(), str::len)
}

/// Returns the largest number among the arguments, named ones included.
fn largest(arguments: &[ValueOrKwargs]) -> usize {
    let number = |value: &Value| {
        let is_number = value.kind() == ValueKind::Number;
        if is_number { usize::try_from(value.clone()).unwrap_or(usize::MAX) } else { 0 }
    };
    let named = |value: &Value| {
        let keys = value.try_iter().into_iter().flatten();
        let values = keys.filter_map(|key| value.get_item(&key).ok());
        values.map(|value| number(&value)).max().unwrap_or(0)
    };
    let one = |value: &ValueOrKwargs| if value.is_kwargs() { named(value) } else { number(value) };
    arguments.iter().map(one).max().unwrap_or(0)
}

/// Appends to a buffer, up to the bounds.
pub(super) struct Limited<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> Limited<'a> {
    /// Creates a writer for the text of one message. The buffer holds the texts of earlier messages.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let end = out.len().saturating_add(LONGEST).min(MOST);
        Self { out, end }
    }
}

impl io::Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len().saturating_add(bytes.len()) > self.end {
            return Err(io::Error::other("the text has more than 16 MiB, or those of a batch 256 MiB"));
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
