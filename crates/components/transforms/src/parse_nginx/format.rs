//! The formats of access logs: the directive `log_format` and the formats with a name.
//!
//! See <https://nginx.org/en/docs/http/ngx_http_log_module.html#log_format>, and
//! <https://kubernetes.github.io/ingress-nginx/user-guide/nginx-configuration/log-format/>.

use thalweg_codec::columns::FieldType;

use crate::access_log::{Format, Part, Shape, Variable};

const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
const MAIN: &str = r#" "$http_x_forwarded_for""#;
const INGRESS: &str = " $request_length $request_time [$proxy_upstream_name] [$proxy_alternative_upstream_name] \
     $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id";

/// Reads a format: one with a name, the text of a format, or a whole directive.
///
/// # Errors
/// The mistake in it.
pub(super) fn read(format: &str) -> Result<Format, String> {
    match format {
        "combined" => Format::new(parts(COMBINED)),
        "main" => Format::new(parts(COMBINED).chain(parts(MAIN))),
        "ingress" => Format::new(parts(COMBINED).chain(parts(INGRESS))),
        _ if !format.contains('$') => Err(format!(
            "`{format}` is not a format of nginx. It is `combined`, `main`, `ingress`, `error`, or a text with \
             variables, such as `$remote_addr`."
        )),
        _ => Format::new(parts(&text_of(format.trim()))),
    }
}

/// Returns the text of a format that may be a whole directive: `log_format name escape=json 'a' 'b';`.
fn text_of(format: &str) -> String {
    let Some(mut rest) = format.strip_prefix("log_format ") else {
        return if format.starts_with('\'') { joined(format) } else { format.to_owned() };
    };
    rest = rest.trim_start();
    while let Some((word, after)) = rest.split_once(char::is_whitespace) {
        if word.starts_with(['\'', '"']) {
            break;
        }
        rest = after.trim_start();
    }
    joined(rest)
}

/// Returns the texts within quotes as one.
fn joined(quoted: &str) -> String {
    let mut text = String::new();
    let mut quote = None;
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match quote {
            None => quote = Some(character).filter(|character| matches!(character, '\'' | '"')),
            Some(open) if character == open => quote = None,
            Some(open) if character == '\\' => match characters.next() {
                Some(escaped) if escaped == open || escaped == '\\' => text.push(escaped),
                escaped => text.extend([character].into_iter().chain(escaped)),
            },
            Some(_) => text.push(character),
        }
    }
    text
}

/// Returns the literals and variables of a format.
fn parts(format: &str) -> impl Iterator<Item = Part> {
    let mut parts = Vec::new();
    let mut pieces = format.split('$');
    parts.extend(pieces.next().map(|text| Part::Literal(text.to_owned())));
    for piece in pieces {
        let is_part_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let (name, literal) = match piece.strip_prefix('{').and_then(|piece| piece.split_once('}')) {
            Some(divided) => divided,
            None => piece.split_at(piece.find(|c| !is_part_of_name(c)).unwrap_or(piece.len())),
        };
        if name.is_empty() {
            parts.push(Part::Literal(format!("${literal}")));
        } else {
            parts.push(Part::Variable(variable(name)));
            parts.push(Part::Literal(literal.to_owned()));
        }
    }
    parts.into_iter()
}

/// Returns what is known of a variable.
fn variable(name: &str) -> Variable {
    let kind = match name {
        "status"
        | "body_bytes_sent"
        | "bytes_sent"
        | "bytes_received"
        | "request_length"
        | "content_length"
        | "connection"
        | "connection_requests"
        | "connections_active"
        | "connections_reading"
        | "connections_writing"
        | "connections_waiting"
        | "remote_port"
        | "realip_remote_port"
        | "server_port"
        | "proxy_port"
        | "proxy_protocol_port"
        | "proxy_protocol_server_port"
        | "pid"
        | "sent_http_content_length"
        | "http_content_length"
        | "upstream_status"
        | "upstream_response_length"
        | "upstream_bytes_received"
        | "upstream_bytes_sent" => FieldType::Int,
        "request_time"
        | "session_time"
        | "connection_time"
        | "gzip_ratio"
        | "upstream_response_time"
        | "upstream_header_time"
        | "upstream_connect_time"
        | "upstream_queue_time"
        | "upstream_session_time"
        | "upstream_first_byte_time" => FieldType::Float,
        "time_local" | "time_iso8601" | "msec" => FieldType::Timestamp,
        _ => FieldType::Text,
    };
    match name {
        "time_local" => Variable::new("time", kind).shaped(Shape::Spaced(1)),
        "time_iso8601" | "msec" => Variable::new("time", kind),
        "request" => Variable::new(name, kind).shaped(Shape::Request),
        "http_x_forwarded_for" | "proxy_add_x_forwarded_for" => Variable::new(name, kind).shaped(Shape::List),
        _ if name.starts_with("upstream_") => Variable::new(name, kind).shaped(Shape::List),
        _ => Variable::new(name, kind),
    }
}
