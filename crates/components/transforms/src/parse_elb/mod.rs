//! Parses the access logs of AWS load balancers.
//!
//! A record is a list of values between spaces, some of them in quotes. AWS adds values at the end from time
//! to time, and says that readers should ignore those that they do not know. The columns of a kind of load
//! balancer are added with the first record of that kind.

mod fields;
#[cfg(test)]
mod tests;

use memchr::{memchr, memchr2};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{Columns, FieldType, unknown_types};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Transform, TransformConfig};

use crate::access_log::Request;
use crate::quoted::unescaped;
use crate::text_parser::{TextOptions, TextParser, TextReader, push};
use fields::{Field, Form, Kind};

/// Parses the access logs of AWS load balancers: classic (ELB), application (ALB) and network (NLB).
///
/// The fields have the names of AWS's documentation, in lower case and with `_`. An address with a port
/// becomes two fields: `client_ip` and `client_port`, `target_ip` and `target_port`, and `backend_ip`,
/// `destination_ip` in the same way. `time` is a point in time, also where AWS calls it `timestamp`. The
/// parts of `request` are the fields `request_method`, `request_uri` and `server_protocol`, as in
/// `parse_nginx`. Names of protocols in a list are separated by commas, without quotes. The value `-` is
/// NULL. Values that AWS adds at the end in the future are ignored.
///
/// A line of another format leaves by the `errors` output, and so does one with a quote in a value that no
/// backslash escapes: where the value ends is not certain. The formats are described at
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseElb {
    /// The kind of load balancer. The default is `auto`: each line tells its kind.
    #[serde(default)]
    format: ElbFormat,
    #[serde(flatten)]
    options: TextOptions,
}

/// The kind of load balancer that wrote a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ElbFormat {
    /// The kind that each line tells.
    #[default]
    Auto,
    /// A classic load balancer (ELB).
    Classic,
    /// An application load balancer (ALB).
    Application,
    /// A network load balancer (NLB), which logs connections with TLS.
    Network,
}

impl ElbFormat {
    fn kind(self) -> Option<Kind> {
        match self {
            Self::Auto => None,
            Self::Classic => Some(Kind::Classic),
            Self::Application => Some(Kind::Application),
            Self::Network => Some(Kind::Network),
        }
    }
}

impl ParseElb {
    /// Returns the names and types of the fields that messages may have.
    fn names(&self) -> impl Iterator<Item = (&'static str, FieldType)> + Clone {
        let only = self.format.kind();
        let kinds = Kind::ALL.into_iter().filter(move |kind| only.is_none_or(|only| only == *kind));
        kinds.flat_map(Kind::names)
    }
}

impl Component for ParseElb {
    const NAME: &'static str = "parse_elb";
    const EXAMPLE: &'static str = r#"
sources:
  access:
    generate:
      message: '2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -'
      count: 3
pipelines:
  main:
    from: access
    transforms:
      - parse_elb: { format: classic }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        unknown_types(&self.options.types, self.names().map(|(name, _)| name)).collect()
    }
}

impl TransformConfig for ParseElb {
    fn fields(&self) -> Vec<String> {
        vec![self.options.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        self.options.fields_after(before, self.names())
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let columns = Columns::new(self.options.typing(self.names()), [""; 0]);
        let reader = Records { kind: self.format.kind(), layouts: [None, None, None], decoded: Vec::new() };
        Ok(Box::new(TextParser::new(reader, columns, &self.options.field)))
    }
}

struct Records {
    /// The kind of all records, if it is given.
    kind: Option<Kind>,
    layouts: [Option<Layout>; 3],
    /// The last value with escapes, decoded.
    decoded: Vec<u8>,
}

/// The columns of the records of one kind.
struct Layout {
    /// The first column of each value. An address has two columns.
    columns: Vec<[usize; 2]>,
    request: Request,
}

impl Layout {
    fn new(fields: &[Field], columns: &mut Columns) -> Self {
        let mut number = |name: &str| {
            let known = (0..columns.len()).find(|&column| columns.name(column) == Some(name));
            known.unwrap_or_else(|| columns.add(name))
        };
        let mut numbers = Vec::new();
        for field in fields {
            let mut pair = [0; 2];
            for (slot, (name, _)) in pair.iter_mut().zip(field.columns()) {
                *slot = number(name);
            }
            numbers.push(pair);
        }
        if fields.iter().any(|field| field.form == Form::Request) {
            for name in Request::FIELDS {
                number(name);
            }
        }
        Self { columns: numbers, request: Request::new(columns, 0) }
    }
}

impl TextReader for Records {
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let text = text.trim_ascii_end();
        let kind = self.kind.unwrap_or_else(|| Kind::of(text));
        let fields = kind.fields();
        let [classic, application, network] = &mut self.layouts;
        let layout = match kind {
            Kind::Classic => classic,
            Kind::Application => application,
            Kind::Network => network,
        };
        let layout = layout.get_or_insert_with(|| Layout::new(fields, columns));
        let mut at = 0;
        let mut count = 0;
        for (field, &[first, second]) in fields.iter().zip(&layout.columns) {
            let Some(value) = value(text, &mut at, field.form)? else { break };
            count += 1;
            let value = unescaped(value, &mut self.decoded);
            match field.form {
                Form::Value => push(columns, first, value)?,
                // The quotes around the whole list are removed already.
                Form::Names => push(columns, first, &value.replace("\",\"", ","))?,
                Form::Request => layout.request.push(columns, first, value)?,
                Form::Address => {
                    let (host, port) = match value.rsplit_once(':') {
                        Some((host, port)) => (host, Some(port)),
                        None => (value, None),
                    };
                    push(columns, first, host)?;
                    columns.push_if_any(second, port)?;
                }
            }
        }
        let least = kind.least();
        if count < least {
            let noun = kind.noun();
            return Err(format!("has {count} values, and a record of {noun} has at least {least}"));
        }
        // A quote that is out of place there may be that of an earlier value.
        while value(text, &mut at, Form::Names)?.is_some() {}
        Ok(())
    }
}

/// Returns the value at byte `at`, if there is one, which becomes the start of the next value. `form` says
/// whether quotes between commas are parts of it.
///
/// A client chooses parts of the request and the user agent. If its quote ended a value, the client could
/// write the values that follow. So a quote that is neither escaped nor followed by a space is an error: the
/// line has more than one reading.
fn value<'a>(text: &'a str, at: &mut usize, form: Form) -> Result<Option<&'a str>, String> {
    let start = *at;
    let stray = |quote: usize| format!("the quote at byte {quote} is inside of a value, without a backslash");
    let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let Some(inside) = rest.strip_prefix('"') else {
        let length = memchr(b' ', rest.as_bytes()).unwrap_or(rest.len());
        let value = rest.get(..length).unwrap_or_default();
        *at = start + length + 1;
        return match memchr(b'"', value.as_bytes()) {
            Some(quote) => Err(stray(start + quote)),
            None => Ok(Some(value)),
        };
    };
    let bytes = inside.as_bytes();
    let mut from = 0;
    loop {
        let found = memchr2(b'"', b'\\', bytes.get(from..).unwrap_or_default())
            .ok_or_else(|| format!("the quote at byte {start} is not closed"))?;
        let end = from + found;
        from = match (bytes.get(end), bytes.get(end + 1..)) {
            // The character after a backslash.
            (Some(b'\\'), _) => end + 2,
            (_, None | Some([] | [b' ', ..])) => {
                *at = start + end + 3;
                return Ok(inside.get(..end));
            }
            (_, Some([b',', b'"', ..])) if form == Form::Names => end + 3,
            _ => return Err(stray(start + 1 + end)),
        };
    }
}
