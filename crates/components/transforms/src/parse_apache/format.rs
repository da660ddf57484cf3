//! The formats of access logs: the directive `LogFormat` and the formats with a name.
//!
//! See <https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#formats>.

use thalweg_codec::columns::FieldType;

use crate::access_log::{Format, Part, Shape, Variable};

const COMMON: &str = r#"%h %l %u %t "%r" %>s %b"#;
const COMBINED: &str = r#"%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i""#;
const VHOST_COMBINED: &str = r#"%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i""#;

/// Reads a format: one with a name, the text of a format, or a whole directive.
///
/// # Errors
/// The mistake in it.
pub(super) fn read(format: &str) -> Result<Format, String> {
    let text = match format {
        "common" => COMMON.to_owned(),
        "combined" => COMBINED.to_owned(),
        "vhost_combined" => VHOST_COMBINED.to_owned(),
        _ if !format.contains('%') => {
            return Err(format!(
                "`{format}` is not a format of Apache. It is `common`, `combined`, `vhost_combined`, `error`, or a \
                 text with directives, such as `%h`."
            ));
        }
        _ => text_of(format.trim()),
    };
    let mut parts = Vec::new();
    let mut rest = text.as_str();
    while let Some((literal, after)) = rest.split_once('%') {
        parts.push(Part::Literal(literal.to_owned()));
        rest = directive(after, &mut parts)?;
    }
    parts.push(Part::Literal(rest.to_owned()));
    Format::new(parts)
}

/// Returns the text of a format that may be a whole directive: `LogFormat "%h \"%r\"" name`. Its quotes may
/// be escaped in any case.
fn text_of(format: &str) -> String {
    let is_whole = |format: &&str| format.starts_with("LogFormat ") || format.starts_with("CustomLog ");
    let quoted = Some(format).filter(is_whole).and_then(|format| {
        let (_, text) = format.split_once('"')?;
        Some(text.rsplit_once('"')?.0)
    });
    let text = quoted.unwrap_or(format);
    text.replace("\\\"", "\"").replace("\\t", "\t").replace("\\\\", "\\")
}

/// Reads a directive after its `%`. Returns the rest of the format.
fn directive<'a>(text: &'a str, parts: &mut Vec<Part>) -> Result<&'a str, String> {
    // A directive may be limited to statuses, `%!200,304{...}i`, and ask for the first or last request.
    let is_modifier =
        |character: char| character.is_ascii_digit() || matches!(character, ',' | '!' | '<' | '>');
    let text = text.trim_start_matches(is_modifier);
    let (argument, text) = match text.strip_prefix('{').map(|text| text.split_once('}')) {
        Some(Some((argument, rest))) => (argument, rest),
        Some(None) => return Err("A `{` of the format has no `}`.".to_owned()),
        None => ("", text),
    };
    let trailer = text.starts_with("^t");
    let length = if trailer { 3 } else { text.chars().next().map_or(0, char::len_utf8) };
    let (letter, rest) = text.split_at(length);
    match letter {
        "" => return Err("The format ends within a directive.".to_owned()),
        "%" => parts.push(Part::Literal("%".to_owned())),
        // Apache writes this time in brackets.
        "t" if argument.is_empty() => {
            let time = Variable::new("time", FieldType::Timestamp).shaped(Shape::Spaced(1));
            parts.extend([
                Part::Literal("[".to_owned()),
                Part::Variable(time),
                Part::Literal("]".to_owned()),
            ]);
        }
        _ => match variable(letter, argument) {
            Some(variable) => parts.push(Part::Variable(variable)),
            None => return Err(format!("`%{letter}` is not a directive of a format.")),
        },
    }
    Ok(rest)
}

/// Returns what is known of a directive.
fn variable(letter: &str, argument: &str) -> Option<Variable> {
    let prefixed = |prefix: &str| format!("{prefix}{}", argument.to_ascii_lowercase().replace('-', "_"));
    let text = |name: &str| Variable::new(name, FieldType::Text);
    let int = |name: &str| Variable::new(name, FieldType::Int);
    let header = |prefix: &str| {
        let is_length = argument.eq_ignore_ascii_case("content-length");
        let variable =
            Variable::new(prefixed(prefix), if is_length { FieldType::Int } else { FieldType::Text });
        let is_list = argument.eq_ignore_ascii_case("x-forwarded-for");
        if is_list { variable.shaped(Shape::List) } else { variable }
    };
    Some(match (letter, argument) {
        ("h" | "a", "" | "c") => text("remote_addr"),
        ("A", _) => text("server_addr"),
        ("B" | "b", _) => int("body_bytes_sent"),
        ("C", _) => text(&format!("cookie_{argument}")),
        ("D", _) => int("request_time_us"),
        ("T", "" | "s") => Variable::new("request_time", FieldType::Float),
        ("T", "ms") => int("request_time_ms"),
        ("T", "us") => int("request_time_us"),
        ("e", _) => text(&format!("env_{argument}")),
        ("n", _) => text(&format!("note_{argument}")),
        ("f", _) => text("request_filename"),
        ("H", _) => text("server_protocol"),
        ("i", _) => header("http_"),
        ("o", _) => header("sent_http_"),
        ("^ti", _) => text(&prefixed("trailer_")),
        ("^to", _) => text(&prefixed("sent_trailer_")),
        ("I", _) => int("request_length"),
        ("O", _) => int("bytes_sent"),
        ("S", _) => int("bytes_transferred"),
        ("k", _) => int("keepalive_requests"),
        ("l", _) => text("remote_logname"),
        ("L", _) => text("request_log_id"),
        ("m", _) => text("request_method"),
        ("p", "remote") => int("remote_port"),
        ("p", _) => int("server_port"),
        ("P", "tid" | "hextid") => text("tid"),
        ("P", _) => int("pid"),
        ("q", _) => text("query_string").shaped(Shape::Query),
        ("r", _) => text("request").shaped(Shape::Request),
        ("R", _) => text("handler"),
        ("s", _) => int("status"),
        ("t", "sec" | "msec" | "usec") => Variable::new("time", FieldType::Timestamp),
        ("t", format) => text("time").shaped(Shape::Spaced(format.matches(' ').count())),
        ("u", _) => text("remote_user"),
        ("U", _) => text("uri"),
        ("v" | "V", _) => text("server_name"),
        ("X", _) => text("connection_status"),
        _ => return None,
    })
}
