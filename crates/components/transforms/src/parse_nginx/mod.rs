//! Parses the logs of nginx.
//!
//! `format` reads the directive `log_format`, `error` the log of errors. The module `access_log` parses lines
//! of an access log.

mod error;
mod format;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Transform, TransformConfig};

use crate::access_log::ServerLog;
use crate::text_parser::TextOptions;

/// Parses the access logs and error logs of nginx.
///
/// Each variable of the format becomes a field of its name, such as `remote_addr`, `status` and
/// `http_user_agent`. Statuses, lengths, ports and counts are whole numbers, durations are numbers. The times
/// `$time_local`, `$time_iso8601` and `$msec` are the field `time`. `$request` is the field `request`, and
/// its parts are the fields `request_method`, `request_uri` and `server_protocol`, which are NULL if the
/// client sent something other than a request. The value `-` is NULL. Escapes, such as `\x22`, are decoded.
/// The same names are used by `parse_apache`.
///
/// A request that several upstream servers answered has several values of variables such as `$upstream_addr`,
/// which are one text. Of `$upstream_status`, `$upstream_response_time` and other numbers, only the last
/// counts, unless `types` makes them text.
///
/// A line of another format leaves by the `errors` output. The formats are described at
/// <https://nginx.org/en/docs/http/ngx_http_log_module.html>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseNginx {
    /// The format: `combined`, which is the default, `main` (with `$http_x_forwarded_for` at the end, as in
    /// the configuration that nginx installs), `ingress` (of Kubernetes' ingress-nginx), `error` (the log of
    /// errors), or the text of a directive `log_format`.
    ///
    /// With `error`, the fields are `time`, `level`, `pid`, `tid`, `connection` and `message`, and `client`,
    /// `server`, `login`, `request`, `subrequest`, `upstream`, `host` and `referrer` where nginx names them.
    /// Streams have `bytes_from_client`, `bytes_to_client`, `bytes_from_upstream` and `bytes_to_upstream` as
    /// well. A line in which `client` may be one of two values, since a request contained the text of a line,
    /// leaves by the `errors` output.
    #[serde(default = "combined")]
    format: String,
    #[serde(flatten)]
    options: TextOptions,
}

fn combined() -> String {
    "combined".to_owned()
}

impl ParseNginx {
    fn log(&self) -> Result<ServerLog, String> {
        if self.format == ServerLog::ERROR {
            return Ok(ServerLog::Errors {
                fields: &error::FIELDS,
                reader: Box::new(error::ErrorLog::new()),
            });
        }
        format::read(&self.format).map(ServerLog::Access)
    }
}

impl Component for ParseNginx {
    const NAME: &'static str = "parse_nginx";
    const EXAMPLE: &'static str = r#"
sources:
  access:
    generate:
      message: '203.0.113.7 - ann [25/Nov/2026:08:14:02 +0000] "GET /a?b=1 HTTP/1.1" 200 5316 0.027'
      count: 3
pipelines:
  main:
    from: access
    transforms:
      - parse_nginx:
          format: '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent $request_time'
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        ServerLog::check(self.log(), &self.options)
    }
}

impl TransformConfig for ParseNginx {
    fn fields(&self) -> Vec<String> {
        vec![self.options.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        ServerLog::fields_after(self.log(), &self.options, before)
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        Ok(self.log().map_err(Error::permanent)?.parser(&self.options))
    }
}
