//! Parses the logs of Apache's HTTP server.
//!
//! `format` reads the directive `LogFormat`, `error` the log of errors. The module `access_log` parses lines
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

/// Parses the access logs and error logs of Apache's HTTP server.
///
/// The fields have the names that nginx gives the same values, as in `parse_nginx`: `%h` and `%a` are
/// `remote_addr`, `%u` `remote_user`, `%t` `time`, `%>s` `status`, `%b` `body_bytes_sent`, `%O` `bytes_sent`,
/// `%v` `server_name`, `%{Referer}i` `http_referer`, `%{Location}o` `sent_http_location`, `%{id}C`
/// `cookie_id` and `%{NAME}e` `env_NAME`. `%l` is `remote_logname`. `%T` is `request_time`, in seconds, and
/// `%D` `request_time_us`, in microseconds. `%r` is `request`, and its parts are `request_method`,
/// `request_uri` and `server_protocol`. A second value of one name is numbered, as in `remote_addr_2`.
///
/// Statuses, lengths, ports and counts are whole numbers, and `time` is a point in time. The value `-` is
/// NULL. Escapes, such as `\"` and `\xhh`, are decoded. A line of another format leaves by the `errors`
/// output. The formats are described at <https://httpd.apache.org/docs/2.4/mod/mod_log_config.html>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseApache {
    /// The format: `combined`, which is the default, `common`, `vhost_combined` (with host and port before
    /// it), `error` (the log of errors), or the text of a directive `LogFormat`.
    ///
    /// With `error`, the fields are `time`, `module`, `level`, `pid`, `tid`, `source`, which is a place in
    /// Apache's sources, `error`, which is an error of the system, `client`, `port` and `message`.
    #[serde(default = "combined")]
    format: String,
    #[serde(flatten)]
    options: TextOptions,
}

fn combined() -> String {
    "combined".to_owned()
}

impl ParseApache {
    fn log(&self) -> Result<ServerLog, String> {
        if self.format == ServerLog::ERROR {
            return Ok(ServerLog::Errors { fields: &error::FIELDS, reader: Box::new(error::ErrorLog) });
        }
        format::read(&self.format).map(ServerLog::Access)
    }
}

impl Component for ParseApache {
    const NAME: &'static str = "parse_apache";
    const EXAMPLE: &'static str = r#"
sources:
  access:
    generate:
      message: '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
      count: 3
pipelines:
  main:
    from: access
    transforms:
      - parse_apache: { format: common }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        ServerLog::check(self.log(), &self.options)
    }
}

impl TransformConfig for ParseApache {
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
