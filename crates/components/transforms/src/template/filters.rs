//! The filters of the library, with bounds for what they make: see [`bounds`](super::bounds).
//!
//! A filter that returns a part of its input, a number or a truth value is as it was.

use minijinja::value::{Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, filters};
use thalweg_record::LONGEST_TEXT;

use super::bounds::{
    GROUP, MOST_ITEMS, count, count_items, count_text, escaped_size, item_count, longest, made, text_size,
};

/// The arguments of a filter, with and without names.
type Arguments = Rest<ValueOrKwargs>;

/// Counts what a filter is about to make of a value.
type Bound = fn(&Value, &[ValueOrKwargs]) -> Result<(), Error>;

/// Replaces the filters that make values.
pub(super) fn set(environment: &mut Environment<'static>) {
    let make: [(&'static str, Value, Bound); 34] = [
        ("batch", Value::from_function(filters::batch), batches),
        ("capitalize", Value::from_function(filters::capitalize), text),
        ("chain", Value::from_function(filters::chain), items),
        ("dictsort", Value::from_function(filters::dictsort), items),
        ("e", Value::from_function(filters::escape), escaped),
        ("escape", Value::from_function(filters::escape), escaped),
        ("format", Value::from_function(filters::format), formatted),
        ("groupby", Value::from_function(filters::groupby), groups),
        ("indent", Value::from_function(filters::indent), indented),
        ("items", Value::from_function(filters::items), items),
        ("join", Value::from_function(filters::join), joined),
        ("lines", Value::from_function(filters::lines), pieces),
        ("list", Value::from_function(filters::list), items),
        ("lower", Value::from_function(filters::lower), text),
        ("map", Value::from_function(filters::map), items),
        ("pprint", Value::from_function(filters::pprint), escaped),
        ("reject", Value::from_function(filters::reject), items),
        ("rejectattr", Value::from_function(filters::rejectattr), items),
        ("replace", Value::from_function(filters::replace), replaced),
        ("reverse", Value::from_function(filters::reverse), items),
        ("safe", Value::from_function(filters::safe), text),
        ("select", Value::from_function(filters::select), items),
        ("selectattr", Value::from_function(filters::selectattr), items),
        ("slice", Value::from_function(filters::slice), slices),
        ("sort", Value::from_function(filters::sort), items),
        ("split", Value::from_function(filters::split), pieces),
        ("string", Value::from_function(filters::string), text),
        ("sum", Value::from_function(filters::sum), summed),
        ("title", Value::from_function(filters::title), text),
        ("tojson", Value::from_function(filters::tojson), json),
        ("trim", Value::from_function(filters::trim), text),
        ("unique", Value::from_function(filters::unique), items),
        ("upper", Value::from_function(filters::upper), text),
        ("zip", Value::from_function(filters::zip), groups),
    ];
    for (name, filter, bound) in make {
        environment.add_filter(name, move |state: &mut State, value: Value, rest: Arguments| {
            bound(&value, &rest)?;
            let arguments: Vec<Value> = std::iter::once(value).chain(rest.into_values()).collect();
            made(filter.call(state, &arguments)?)
        });
    }
}

fn text(value: &Value, _: &[ValueOrKwargs]) -> Result<(), Error> {
    count_text(text_size(value)?)
}

fn escaped(value: &Value, _: &[ValueOrKwargs]) -> Result<(), Error> {
    count_text(escaped_size(value)?)
}

fn json(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let spaces = indentation(value, 1, largest(arguments), longest())?;
    count_text(escaped_size(value)?.saturating_add(spaces))
}

/// Returns the size of the line feeds and spaces in indented JSON. It stops beyond `most`.
fn indentation(value: &Value, level: usize, width: usize, most: usize) -> Result<usize, Error> {
    if width == 0 || !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable) {
        return Ok(0);
    }
    let is_map = value.kind() == ValueKind::Map;
    let line = level.saturating_mul(width).saturating_add(1);
    let mut size = line;
    for item in value.try_iter()? {
        let item = if is_map { value.get_item(&item)? } else { item };
        size = size.saturating_add(line).saturating_add(indentation(&item, level + 1, width, most)?);
        if size > most {
            break;
        }
    }
    Ok(size)
}

fn items(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let lists = arguments.iter().filter(|value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable));
    let all = lists.map(|value| item_count(value)).fold(item_count(value), usize::saturating_add);
    count_items(all)
}

/// Each item may be a group of its own.
fn groups(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    items(value, arguments)?;
    count(item_count(value).saturating_mul(GROUP))
}

/// A list is allocated for the number of items that it is to have.
fn batches(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    count_items(largest(arguments))?;
    groups(value, arguments)
}

fn slices(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let slices = largest(arguments);
    count_items(slices)?;
    count(slices.saturating_mul(GROUP))?;
    items(value, arguments)
}

/// A sum of texts is a text.
fn summed(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    items(value, arguments)?;
    text(value, arguments)
}

fn joined(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let between = arguments.first().map_or(Ok(0), |separator| text_size(separator))?;
    let separators = item_count(value).saturating_mul(between);
    count_text(text_size(value)?.saturating_add(separators))
}

fn pieces(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let text = value.as_str().unwrap_or_default();
    let count_of = match arguments.first().and_then(|separator| separator.as_str()) {
        Some(separator) => text.matches(separator).count(),
        None => text.split_ascii_whitespace().count(),
    };
    count(text.len())?;
    count_items(count_of.max(text.matches('\n').count()) + 1)
}

fn indented(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let lines = value.as_str().map_or(1, |text| text.split('\n').count());
    count_text(largest(arguments).saturating_mul(lines).saturating_add(text_size(value)?))
}

fn formatted(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let format = value.as_str().unwrap_or_default();
    let widths = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths = widths.map(|digits| digits.parse().unwrap_or(usize::MAX));
    // `*` takes the width from the values.
    let given = if format.contains('*') { largest(arguments).saturating_mul(arguments.len()) } else { 0 };
    let mut size = widths.fold(given, usize::saturating_add).saturating_add(format.len());
    for argument in arguments {
        size = size.saturating_add(text_size(argument)?);
    }
    count_text(size)
}

fn replaced(value: &Value, arguments: &[ValueOrKwargs]) -> Result<(), Error> {
    let (from, to) = (arguments.first(), arguments.get(1));
    let size = text_size(value)?;
    count(size)?;
    let from = from.map(|from| from.to_string()).unwrap_or_default();
    let count_of = value.to_string().matches(&from).count();
    let to = to.map_or(Ok(0), |to| text_size(to))?;
    count_text(count_of.saturating_mul(to).saturating_add(size))
}

/// Returns the largest number among the arguments, named ones included.
fn largest(arguments: &[ValueOrKwargs]) -> usize {
    let number = |value: &Value| {
        let is_number = value.kind() == ValueKind::Number;
        if is_number { usize::try_from(value.clone()).unwrap_or(MOST_ITEMS.max(LONGEST_TEXT) + 1) } else { 0 }
    };
    let named = |value: &Value| {
        let keys = value.try_iter().into_iter().flatten();
        let values = keys.filter_map(|key| value.get_item(&key).ok());
        values.map(|value| number(&value)).max().unwrap_or(0)
    };
    let one = |value: &ValueOrKwargs| if value.is_kwargs() { named(value) } else { number(value) };
    arguments.iter().map(one).max().unwrap_or(0)
}
