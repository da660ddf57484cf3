//! Filters that write values as Go's templates do: `go_text`, `go_print`, `go_printf` and their kin.
//!
//! Templates of gollum are translated into these. They render values through JSON, because a message's fields
//! were JSON in gollum too.

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;

use super::bounds::{count_text, escaped_size};
use crate::gollum::go::{printed, quoted};
use crate::gollum::printf::printf;

/// A filter with any number of arguments.
type Filter = fn(&[Json]) -> Result<String, Error>;

/// Adds the filters.
pub(super) fn set(environment: &mut Environment<'static>) {
    let filters: [(&'static str, Filter); 9] = [
        ("go_text", |values| Ok(text(values))),
        ("go_print", |values| Ok(print(values))),
        ("go_println", |values| Ok(joined(values) + "\n")),
        ("go_printf", |values| format(values)),
        ("go_html", |values| Ok(html(&print(values)))),
        ("go_js", |values| Ok(js(&print(values)))),
        ("go_urlquery", |values| Ok(urlquery(&print(values)))),
        ("go_slice", slice),
        ("go_fail", |values| Err(invalid(&print(values)))),
    ];
    for (name, filter) in filters {
        environment.add_filter(name, move |first: Value, rest: Rest<Value>| {
            let mut values = Vec::with_capacity(rest.len() + 1);
            for value in std::iter::once(&first).chain(rest.iter()) {
                count_text(escaped_size(value)?)?;
                values.push(json(value)?);
            }
            let written = filter(&values)?;
            count_text(written.len())?;
            Ok::<_, Error>(Value::from(written))
        });
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_owned())
}

fn json(value: &Value) -> Result<Json, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Json::Null),
        _ => serde_json::to_value(value).map_err(|error| invalid(&error.to_string())),
    }
}

/// Go writes this for a missing field.
fn text(values: &[Json]) -> String {
    match values {
        [Json::Null] => "<no value>".to_owned(),
        values => print(values),
    }
}

/// Joins values, with spaces between two that are both no texts.
fn print(values: &[Json]) -> String {
    let mut out = String::new();
    let mut previous: Option<&Json> = None;
    for value in values {
        if previous.is_some_and(|previous| !previous.is_string()) && !value.is_string() {
            out.push(' ');
        }
        out.push_str(&printed(value));
        previous = Some(value);
    }
    out
}

fn joined(values: &[Json]) -> String {
    values.iter().map(printed).collect::<Vec<_>>().join(" ")
}

fn format(values: &[Json]) -> Result<String, Error> {
    match values {
        [Json::String(format), values @ ..] => {
            printf(format, values, super::bounds::longest()).ok_or_else(|| invalid("the text is too long"))
        }
        _ => Err(invalid("the format of `printf` is not a text")),
    }
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\0' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

fn js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '\'' | '"' => out.extend(['\\', character]),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", u32::from(character))),
            other if other < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(other))),
            // Characters that cannot be seen are escaped; `quoted` decides the same.
            other if !other.is_ascii() && quoted(&other.to_string()).contains('\\') => {
                out.push_str(&format!("\\u{:04X}", u32::from(other)));
            }
            other => out.push(other),
        }
    }
    out
}

fn urlquery(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Returns a part of a text, by bytes.
fn slice(values: &[Json]) -> Result<String, Error> {
    let [Json::String(text), bounds @ ..] = values else {
        return Err(invalid("`slice` takes a text"));
    };
    let at = |index: usize, otherwise: usize| match bounds.get(index) {
        None => Some(otherwise),
        Some(bound) => usize::try_from(bound.as_i64()?).ok(),
    };
    let part = at(0, 0).zip(at(1, text.len())).and_then(|(from, to)| text.get(from..to));
    part.map(str::to_owned).ok_or_else(|| invalid("`slice` is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_escaped_as_by_go() {
        let text = "x\"y\n<é&' z";
        assert_eq!(js(text), "x\\\"y\\u000A\\u003Cé\\u0026\\' z");
        assert_eq!(urlquery(text), "x%22y%0A%3C%C3%A9%26%27+z");
        assert_eq!(html(text), "x&#34;y\n&lt;é&amp;&#39; z");
    }

    #[test]
    fn values_are_printed_as_by_go() {
        let values = [json!("a"), json!(1), json!(1.5), json!("x"), json!(1), json!([1, null])];
        assert_eq!(print(&values), "a1 1.5x1 [1 <nil>]");
        assert_eq!(joined(&values[..2]), "a 1");
        assert_eq!((text(&[Json::Null]), text(&[json!(true)])), ("<no value>".into(), "true".into()));
    }

    #[test]
    fn a_part_of_a_text_is_counted_in_bytes() {
        assert_eq!(slice(&[json!("abcd"), json!(1), json!(3)]).unwrap(), "bc");
        assert_eq!(slice(&[json!("abcd"), json!(1)]).unwrap(), "bcd");
        assert!(slice(&[json!("abcd"), json!(3), json!(9)]).is_err());
    }
}
