//! Bounds for what a template may do with one message.
//!
//! A width, a count or the end of a loop may come from the message. A failed allocation would end the
//! process, and a loop that never ends would hold its worker. So a template has a bounded number of steps,
//! and the values that it makes for one message have a bounded size: each text, each list, and all together.
//! The bounds are parts of the memory. A value is counted before a step makes it, or, where it is at most
//! twice what was there, afterwards. The counts are of what was made, not of what is still in use: the
//! library does not tell what it drops.
//!
//! The values count on the budget until the message is rendered. Messages with large values are rendered one
//! at a time: with a worker on each core, the bound for one message would not be one for the process.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use arrow_buffer::MemoryReservation as _;
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, escape_formatter, tests};
use thalweg_record::{Budget, LONGEST_TEXT, Lease, Turn, size_text};

/// The maximum number of steps for one message. A step of a loop takes about five.
const STEPS: u64 = 5_000_000;

/// The maximum size of all values that are made for one message with enough memory, in bytes.
const MOST_MADE: usize = 8 * LONGEST_TEXT;

/// Values of this size are made without a turn, and are not counted on the budget, in bytes.
const FREE: usize = 1 << 20;

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

/// The bounds for one message, and what was made for it so far.
struct Message {
    budget: Option<Budget>,
    longest: usize,
    most_made: usize,
    made: usize,
    /// Held if much was made.
    large: Option<(Lease, Turn)>,
}

thread_local! {
    /// The present message.
    static NOW: RefCell<Message> = const {
        RefCell::new(Message { budget: None, longest: LONGEST_TEXT, most_made: MOST_MADE, made: 0, large: None })
    };
}

/// A message is being rendered. When this is dropped, its values are.
pub(super) struct Rendering(());

impl Drop for Rendering {
    fn drop(&mut self) {
        NOW.with_borrow_mut(|now| now.large = None);
    }
}

/// Begins a message of this size. A text may have an eighth of the memory or the size of the message, all
/// values half of the memory.
pub(super) fn begin(budget: &Budget, size: usize) -> Rendering {
    NOW.with_borrow_mut(|now| {
        *now = Message {
            budget: Some(budget.clone()),
            longest: budget.longest_text().max(size.min(LONGEST_TEXT)),
            most_made: budget.most_values(),
            made: 0,
            large: None,
        };
    });
    Rendering(())
}

/// Counts a value.
///
/// # Errors
/// If the values made for this message are too large.
pub(super) fn count(bytes: usize) -> Result<(), Error> {
    NOW.with_borrow_mut(|now| {
        now.made = now.made.saturating_add(bytes);
        if now.made > now.most_made {
            return Err(too_large(format!("its values take more than {}", size_text(now.most_made))));
        }
        if now.made > FREE {
            now.charge();
        }
        Ok(())
    })
}

impl Message {
    /// Counts what was made on the budget.
    fn charge(&mut self) {
        let made = self.made;
        let Some(budget) = &self.budget else { return };
        let (lease, _) = self.large.get_or_insert_with(|| (budget.claim(made), budget.turn()));
        // In steps, because there may be millions of values.
        if made >= lease.bytes() + FREE {
            lease.resize(made);
        }
    }
}

/// Counts a text.
pub(super) fn count_text(bytes: usize) -> Result<(), Error> {
    if bytes > longest() { Err(too_long()) } else { count(bytes) }
}

/// Counts a list of this many items.
pub(super) fn count_items(items: usize) -> Result<(), Error> {
    if items > MOST_ITEMS {
        return Err(too_large("a list has more than a million items".to_owned()));
    }
    count(items.saturating_mul(ITEM))
}

fn too_large(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// Returns the maximum size of a text, in bytes.
pub(super) fn longest() -> usize {
    NOW.with_borrow(|now| now.longest)
}

fn too_long() -> Error {
    too_large(format!("a text has more than {}", size_text(longest())))
}

/// Checks the size of the text for the whole message.
pub(super) fn fits(text: &str) -> Result<(), String> {
    let longest = longest();
    if text.len() <= longest { Ok(()) } else { Err(format!("the text has more than {}", size_text(longest))) }
}

/// Returns the size of a value as text.
pub(super) fn text_size(value: &Value) -> Result<usize, Error> {
    written_size(value, str::len)
}

/// Returns the most that a value takes as text whose characters are escaped: for HTML, in JSON or by Rust.
pub(super) fn escaped_size(value: &Value) -> Result<usize, Error> {
    let escaped = |c: char| match c {
        '<' | '>' | '&' | '"' | '\'' | '/' | '\0'..' ' | '\x7f' => 6,
        '\\' => 2,
        c if c.is_ascii() => 1,
        c => c.len_utf8().max(c.escape_debug().len()),
    };
    written_size(value, |text| text.chars().map(escaped).sum())
}

fn written_size(value: &Value, size_of: impl Fn(&str) -> usize) -> Result<usize, Error> {
    struct Size<S>(usize, usize, S);
    impl<S: Fn(&str) -> usize> fmt::Write for Size<S> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += self.2(text);
            if self.0 <= self.1 { Ok(()) } else { Err(fmt::Error) }
        }
    }
    if let Some(text) = value.as_str() {
        return Ok(size_of(text));
    }
    let mut size = Size(0, longest(), size_of);
    match write!(size, "{value}") {
        Ok(()) => Ok(size.0),
        Err(_) => Err(too_long()),
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
    let is_escaped = *state.auto_escape() != AutoEscape::None;
    count_text(if is_escaped { escaped_size(value)? } else { text_size(value)? })?;
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
        return Err(too_large("lists are nested more than 64 deep".to_owned()));
    };
    count_items(item_count(value))?;
    let is_map = value.kind() == ValueKind::Map;
    for item in value.try_iter()? {
        let item = if is_map { value.get_item(&item)? } else { item };
        nested(&item, depth)?;
    }
    Ok(())
}
