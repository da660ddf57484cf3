//! Bounds for what a template may do with one message.
//!
//! A width, a count or the end of a loop may come from the message. A failed allocation would end the
//! process, and a loop that never ends would hold its worker. So a template has a bounded number of steps,
//! and the values that it makes for one message have a bounded size: each text, each list, and all together.
//! A value is counted before a step makes it, or, where it is at most twice what was there, afterwards. The
//! counts are of what was made, not of what is still in use: the library does not tell what it drops.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, escape_formatter, tests};

/// The maximum number of steps for one message. A step of a loop takes about five.
const STEPS: u64 = 5_000_000;

/// The maximum size of a text, in bytes. Expressions have the same limit.
pub(super) const LONGEST: usize = 16 << 20;

/// The maximum size of all values that are made for one message, in bytes.
const MOST_MADE: usize = 8 * LONGEST;

/// The most items of a list.
pub(super) const MOST_ITEMS: usize = 1 << 20;

/// The size of an item in a list, in bytes.
const ITEM: usize = 32;

/// The size of a list in a list, in bytes, with its first items.
pub(super) const GROUP: usize = 192;

/// The deepest nesting of lists and mappings. They are written and dropped recursively.
const DEEPEST: usize = 64;

/// The filter that counts two values that are about to become one text.
pub(super) const BOTH_TEXTS: &str = "bound-texts";
/// The filter that counts the product of two values.
pub(super) const FACTORS: &str = "bound-factors";
/// The filter that counts a value that is about to be written as text.
pub(super) const TEXT: &str = "bound-text";
/// The filter that counts a value that was made.
pub(super) const MADE: &str = "bound-made";
/// The filter that counts a list or mapping, and bounds its depth.
pub(super) const NESTED: &str = "bound-nested";

thread_local! {
    /// The size of all values made for the present message so far.
    static SO_FAR: Cell<usize> = const { Cell::new(0) };
}

/// Begins a message.
pub(super) fn begin() {
    SO_FAR.set(0);
}

/// Counts a value.
///
/// # Errors
/// If the values made for this message are too large.
pub(super) fn count(bytes: usize) -> Result<(), Error> {
    let sum = SO_FAR.get().saturating_add(bytes);
    SO_FAR.set(sum);
    if sum <= MOST_MADE { Ok(()) } else { Err(too_large("its values take more than 128 MiB")) }
}

/// Counts a text.
pub(super) fn count_text(bytes: usize) -> Result<(), Error> {
    if bytes > LONGEST { Err(too_large("a text has more than 16 MiB")) } else { count(bytes) }
}

/// Counts a list of this many items.
pub(super) fn count_items(items: usize) -> Result<(), Error> {
    if items > MOST_ITEMS {
        return Err(too_large("a list has more than a million items"));
    }
    count(items.saturating_mul(ITEM))
}

fn too_large(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// Returns the size of a value as text.
pub(super) fn text_size(value: &Value) -> Result<usize, Error> {
    struct Size(usize);
    impl fmt::Write for Size {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            if self.0 <= LONGEST { Ok(()) } else { Err(fmt::Error) }
        }
    }
    if let Some(text) = value.as_str() {
        return Ok(text.len());
    }
    let mut size = Size(0);
    match write!(size, "{value}") {
        Ok(()) => Ok(size.0),
        Err(_) => Err(too_large("a text has more than 16 MiB")),
    }
}

/// Returns the number of items of a list or mapping, or of the characters of a text. It is more than
/// [`MOST_ITEMS`] if there are more.
pub(super) fn item_count(value: &Value) -> usize {
    let walked = || value.try_iter().map_or(0, |items| items.take(MOST_ITEMS + 1).count());
    value.len().unwrap_or_else(walked)
}

/// Counts a value that was made. An iterable that computes its items from those of another one becomes a
/// list: a chain of them would be walked recursively.
pub(super) fn made(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => count_text(text_size(&value)?)?,
        ValueKind::Seq | ValueKind::Map => count_items(item_count(&value))?,
        ValueKind::Iterable => {
            count_items(item_count(&value))?;
            return Ok(Value::from(value.try_iter()?.collect::<Vec<Value>>()));
        }
        _ => {}
    }
    Ok(value)
}

/// Sets the bounds in an environment.
pub(super) fn set(environment: &mut Environment<'static>) {
    environment.set_fuel(Some(STEPS));
    environment.set_formatter(write);
    environment.add_filter(MADE, made);
    environment.add_filter(TEXT, |value: Value| {
        count(text_size(&value)?)?;
        Ok::<_, Error>(value)
    });
    environment.add_filter(BOTH_TEXTS, |both: Value| {
        let sizes = both.try_iter()?.map(|value| text_size(&value));
        count_text(sizes.sum::<Result<usize, Error>>()?)?;
        Ok::<_, Error>(both)
    });
    environment.add_filter(FACTORS, |both: Value| {
        product(&both.get_item_by_index(0)?, &both.get_item_by_index(1)?)?;
        Ok::<_, Error>(both)
    });
    environment.add_filter(NESTED, |value: Value| {
        nested(&value, DEEPEST)?;
        Ok::<_, Error>(value)
    });
    let is_in = Value::from_function(tests::is_in);
    environment.add_test("in", move |state: &mut State, value: Value, all: Value| {
        count(text_size(&value)?)?;
        Ok::<_, Error>(is_in.call(state, &[value, all])?.is_true())
    });
}

/// Writes a value where the template has it.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    // An escaped character takes up to six.
    let growth = if *state.auto_escape() == AutoEscape::None { 1 } else { 6 };
    count_text(text_size(value)?.saturating_mul(growth))?;
    escape_formatter(out, state, value)
}

/// Checks the size of a product, if it is that of a text or list and a number.
fn product(left: &Value, right: &Value) -> Result<(), Error> {
    for (value, factor) in [(left, right), (right, left)] {
        let times = usize::try_from(factor.clone()).unwrap_or(0);
        match value.kind() {
            ValueKind::String => return count_text(text_size(value)?.saturating_mul(times)),
            ValueKind::Seq | ValueKind::Iterable => {
                return count_items(item_count(value).saturating_mul(times));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Counts the items of a list or mapping, and those in it, down to `depth`.
fn nested(value: &Value, depth: usize) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(());
    }
    let Some(depth) = depth.checked_sub(1) else {
        return Err(too_large("lists are nested more than 64 deep"));
    };
    count_items(item_count(value))?;
    let is_map = value.kind() == ValueKind::Map;
    for item in value.try_iter()? {
        let item = if is_map { value.get_item(&item)? } else { item };
        nested(&item, depth)?;
    }
    Ok(())
}
