//! Fetches the values of parameters and checks their types.
//!
//! A missing value is reported in capyfile's words. In two cases capyfile misread a value: a scalar for a
//! list became an empty list, and a number for a text was a crash. Here such a value is read as the user
//! meant it, or is a mistake.

use std::path::Path;

use thalweg_config::{ByteSize, Diagnostic, Diagnostics, Node, Span, Value};

use super::environment::{Environment, SourceType};
use super::operation::{Operation, Parameter};
use super::tables::Takes;
use crate::report::Report;

/// A value with its position and source.
#[derive(Debug, Clone)]
pub(super) struct Got<T> {
    pub(super) value: T,
    pub(super) span: Span,
    pub(super) from: SourceType,
}

impl<T> Got<T> {
    /// True if a mistake may show the value: it is in the definition, or in the request that gets the answer.
    /// A value from elsewhere may be a secret.
    pub(super) fn is_shown(&self) -> bool {
        self.from == SourceType::Value || self.from.is_of_request()
    }

    /// Returns a text of the value of the parameter `name`, for a mistake.
    pub(super) fn shown(&self, text: &str, name: &str) -> String {
        if self.is_shown() { format!("`{text}`") } else { format!("The value of `{name}`") }
    }
}

/// A value before its type is checked.
enum Raw<'a> {
    Node(&'a Node),
    Text(String),
}

/// Fetches values and collects what is wrong with them.
pub(super) struct Values<'v> {
    pub(super) report: &'v mut Report,
    /// Mistakes in the values of a request.
    pub(super) of_request: Diagnostics,
    /// The first operation that cannot work with what the request says, with capyfile's message.
    pub(super) cannot_work: Option<(super::tables::Operation, String)>,
    environment: Environment<'v>,
    /// True if parameters from requests are skipped because there is no request yet.
    before_requests: bool,
}

impl<'v> Values<'v> {
    pub(super) fn new(report: &'v mut Report, none: Diagnostics, environment: Environment<'v>) -> Self {
        Self { report, of_request: none, cannot_work: None, environment, before_requests: false }
    }

    /// Returns an instance for a check without a request: parameters from requests are skipped and do not
    /// count as missing.
    pub(super) fn without_request(
        report: &'v mut Report,
        none: Diagnostics,
        environment: Environment<'v>,
    ) -> Self {
        Self { before_requests: true, ..Self::new(report, none, environment) }
    }

    /// Adds a mistake in a value. It is the client's mistake if the value comes from the request.
    pub(super) fn wrong(&mut self, from: SourceType, span: Span, message: String) -> &mut Diagnostic {
        let mistakes = if from.is_of_request() { &mut self.of_request } else { &mut self.report.mistakes };
        mistakes.error(span, message)
    }

    pub(super) fn text(&mut self, operation: &Operation<'_>, name: &str) -> Option<Got<String>> {
        let parameter = operation.parameter(name)?;
        let raw = self.raw(parameter)?;
        let value = match raw {
            Raw::Text(text) => Some(text),
            // A number, or a time without quotes, is used as written.
            Raw::Node(node) => node.text().map(str::to_owned),
        };
        self.fits(operation, parameter, value, "Put quotes around it.")
    }

    /// Fetches a text that must not be empty.
    pub(super) fn some_text(&mut self, operation: &Operation<'_>, name: &str) -> Option<Got<String>> {
        let got = self.text(operation, name)?;
        if got.value.is_empty() {
            let message = format!("`{name}` of `{}` is empty.", operation.kind.name);
            self.wrong(got.from, got.span, message);
            return None;
        }
        Some(got)
    }

    pub(super) fn number(&mut self, operation: &Operation<'_>, name: &str) -> Option<Got<i64>> {
        let parameter = operation.parameter(name)?;
        let raw = self.raw(parameter)?;
        let text = match &raw {
            Raw::Text(text) => Some(text.as_str()),
            Raw::Node(node) => node.as_str(),
        };
        let value = match &raw {
            Raw::Node(node) => match node.value {
                Value::Integer(value) => Some(value),
                // Go cuts off the fraction, too.
                Value::Float(value) if value.abs() < 9.0e18 => Some(value as i64),
                _ => text.and_then(|text| text.parse().ok()),
            },
            Raw::Text(text) => text.parse().ok(),
        };
        let help = match text.and_then(|text| text.parse::<ByteSize>().ok()) {
            Some(size) if parameter.from == SourceType::Value => {
                format!("Write the number of bytes: `{}`.", size.bytes())
            }
            _ => "Write digits only, for example `1048576`.".to_owned(),
        };
        self.fits(operation, parameter, value, &help)
    }

    pub(super) fn flag(&mut self, operation: &Operation<'_>, name: &str) -> Option<Got<bool>> {
        let parameter = operation.parameter(name)?;
        let raw = self.raw(parameter)?;
        let value = match &raw {
            Raw::Text(text) => flag(text),
            Raw::Node(node) => match &node.value {
                Value::Bool(value) => Some(*value),
                Value::Integer(value) => Some(*value != 0),
                Value::String(text) => flag(text),
                _ => None,
            },
        };
        self.fits(operation, parameter, value, "Write `true` or `false`.")
    }

    pub(super) fn list(&mut self, operation: &Operation<'_>, name: &str) -> Option<Got<Vec<(String, Span)>>> {
        let parameter = operation.parameter(name)?;
        let span = parameter.source.span;
        let (value, help) = match self.raw(parameter)? {
            Raw::Text(text) if text.is_empty() => {
                let message = format!("failed to retrieve string array parameter: `{name}` is empty");
                self.wrong(parameter.from, span, message);
                return None;
            }
            Raw::Text(text) => {
                let list: Option<Vec<String>> = serde_json::from_str(&text).ok();
                let placed = list.map(|list| list.into_iter().map(|text| (text, span)).collect());
                (placed, "Write a JSON list of texts: `[\"a\", \"b\"]`.")
            }
            Raw::Node(node) => {
                if let Some(text) = node.text() {
                    let message = format!(
                        "`{name}` is a list; this one text is taken for a list of one. capyfile took it for an empty list."
                    );
                    self.report.remark(span, message);
                    (Some(vec![(text.to_owned(), span)]), "")
                } else {
                    let text = |item: &Node| Some((item.text()?.to_owned(), item.span));
                    let list = node.as_sequence().and_then(|items| items.iter().map(text).collect());
                    (list, "Write a list of texts: `[a, b]`.")
                }
            }
        };
        self.fits(operation, parameter, value, help)
    }

    fn fits<T>(
        &mut self,
        operation: &Operation<'_>,
        parameter: Parameter<'_>,
        value: Option<T>,
        help: &str,
    ) -> Option<Got<T>> {
        let (span, from) = (parameter.source.span, parameter.from);
        if let Some(value) = value {
            return Some(Got { value, span, from });
        }
        let wanted = match parameter.rule.takes {
            Takes::Text => "text",
            Takes::Number => "a whole number",
            Takes::Flag => "`true` or `false`",
            Takes::List => "a list of texts",
        };
        // A value from outside the definition may be a secret, so the message does not show it.
        let found = match (from, parameter.source.text()) {
            (SourceType::Value, Some(text)) => format!("this is `{text}`"),
            (SourceType::Value, None) => format!("this is {}", parameter.source.kind()),
            (_, source) => format!("the value of `{}` `{}` is not", from.name(), source.unwrap_or("")),
        };
        let message =
            format!("`{}` of `{}` is {wanted}, but {found}.", parameter.rule.name, operation.kind.name);
        self.wrong(from, span, message).help(help);
        None
    }

    /// Fetches a parameter from its source, or reports in capyfile's words why that failed.
    fn raw<'a>(&mut self, parameter: Parameter<'a>) -> Option<Raw<'a>> {
        let (span, from) = (parameter.source.span, parameter.from);
        if from == SourceType::Value {
            return Some(Raw::Node(parameter.source));
        }
        let Some(name) = parameter.source.text() else {
            let message = format!(
                "The `source` of `{}` is a name, but this is {}.",
                from.name(),
                parameter.source.kind()
            );
            self.report.mistake(span, message);
            return None;
        };
        if self.before_requests && from.is_of_request() {
            return None;
        }
        match self.fetch(from, name) {
            Ok(text) => Some(Raw::Text(text)),
            Err((message, help)) => {
                // Without a server no client can supply the value, so the definition is wrong.
                let mistake = match self.environment.request {
                    Some(_) => self.wrong(from, span, message),
                    None => self.report.mistake(span, message),
                };
                if !help.is_empty() {
                    mistake.help(help);
                }
                None
            }
        }
    }

    fn fetch(&self, from: SourceType, name: &str) -> Result<String, (String, String)> {
        let around = &self.environment;
        let missing =
            |what: String| (format!("{what} can not be found. Please make sure it is set"), String::new());
        let unread = |what: String, advice: &str, error: std::io::Error| {
            (
                format!("{what} can not be read. Please make sure it is {advice}"),
                format!("The system says: {error}."),
            )
        };
        match from {
            SourceType::Value => Ok(String::new()),
            SourceType::Variable => {
                (around.variable)(name).ok_or_else(|| missing(format!("environment variable \"{name}\"")))
            }
            SourceType::File => (around.file)(Path::new(name))
                .map(without_line_feed)
                .map_err(|error| unread(format!("file \"{name}\""), "readable", error)),
            SourceType::Secret => (around.file)(&around.secrets.join(name))
                .map(without_line_feed)
                .inspect(|secret| thalweg_redact::keep(secret, None))
                .map_err(|error| unread(format!("secret \"{name}\""), "mounted", error)),
            SourceType::HttpGet | SourceType::HttpPost | SourceType::HttpHeader => {
                let Some(request) = around.request else {
                    let message = format!(
                        "`{}` parameters exist only where a request is served: use `thalweg serve`.",
                        from.name()
                    );
                    return Err((message, String::new()));
                };
                let (value, word) = match from {
                    SourceType::HttpGet => (request.query(name), "get"),
                    SourceType::HttpPost => (request.form(name), "post"),
                    _ => (request.header(name), "header"),
                };
                let value = value.map(str::to_owned);
                value.ok_or_else(|| missing(format!("request {word} parameter \"{name}\"")))
            }
            SourceType::Etcd => {
                let message = format!("etcd key \"{name}\" can not be read");
                let Some(etcd) = around.etcd else {
                    return Err((message, "Say where etcd is: set `ETCD_ENDPOINTS`.".to_owned()));
                };
                match etcd(name) {
                    Ok(Some(value)) => Ok(value),
                    Ok(None) => Err((message, "There is no such key.".to_owned())),
                    Err(error) => Err((message, error)),
                }
            }
        }
    }
}

/// Parses the words that Go accepts as booleans.
fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Removes the final line feed, which editors add to a file.
fn without_line_feed(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}
