//! `http_client`: messages that are fetched from a web server, once or at times.
//!
//! A *poll* asks for what is new: with the cursor that the poll before has got. Its answer may have several
//! pages, each a request of its own. The position of the source is a [`Place`](place::Place): the cursor of
//! the poll, the page, and the number of its messages that were sent. A batch has the place behind it as its
//! checkpoint, so a later run continues in the middle of a page. It asks for that page again, and leaves out
//! the messages that were sent, if the page still begins with them.
//!
//! The pages of a poll are read one after the other: each is named by the one before. Requests ahead of need
//! (pages with numbers could be asked for at once) were rejected, because each holds a body in memory.
//!
//! See docs/decisions/094-samples-are-messages.md for the other source that asks web servers.

mod ask;
mod content;
// Public for its fuzz target.
#[doc(hidden)]
pub mod link;
mod near;
mod pages;
mod place;
mod poll;
#[cfg(test)]
mod tests;
mod trail;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::charset::Charset;
use thalweg_codec::stream_framing::StreamFraming;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::json_path::JsonPath;
use crate::net::{defaults, long_time};
use crate::requests::{Auth, Endpoint};
use crate::tls::TlsClient;
use pages::{By, Pages};
use place::Page;

/// The placeholder of the cursor in `body`.
const CURSOR: &str = "{cursor}";
/// The placeholder of the number, offset or token of the page in `body`.
const PAGE: &str = "{page}";

/// Fetches messages from a web server, with GET or POST: once, or at times.
///
/// The body of an answer is one message, or several with `framing` or `array_field`. It may be compressed
/// with gzip or zstd (`Content-Encoding`). `meta.path` is the URL without its query.
///
/// Without `every`, the source fetches all pages once, and ends. With it, each poll fetches what the server
/// then has. With `cursor`, a poll asks only for what came after the last one. With GET and without `pages`,
/// the source sends the `ETag` and the `Last-Modified` of the last answer back, and an answer 304 has no
/// messages.
///
/// Without an answer, and after 408, 429, 500 and above, a request is repeated, with growing pauses, or after
/// the time that the server asks for (`Retry-After`, at most 5 minutes). Any other status ends the run with
/// an error, except `pages.end_status`; with `every` the error is logged, and the next poll follows at its
/// time. Up to ten redirections are followed, but none from HTTPS to HTTP. They, and the links to pages, may
/// lead to another server: it gets neither `auth` nor `headers`, and no body. A server on another machine
/// cannot lead to this one, nor to a link-local address.
///
/// With `--state`, the cursor and the page are saved when their messages are settled. A run that is killed
/// continues within the page; if the server no longer answers with the messages that were sent, or no longer
/// has the page, messages come again, and none is left out. So they do with `every` after a poll that failed.
/// With `every` and without `cursor`, what was fetched and not written is lost.
///
/// A poll fails if its pages lead in a circle, or if ten pages in a row have the same messages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpClient {
    /// The URL to fetch, for example `https://api.example.com/orders?state=open`. A URL without a scheme uses
    /// `http://`.
    #[schemars(example = &"https://api.example.com/orders")]
    url: String,
    /// The HTTP method: `GET` or `POST`. The default is `POST` with a `body`, and otherwise `GET`.
    #[serde(default)]
    method: Option<Verb>,
    /// The body of the requests. `{cursor}` in it stands for the cursor, and `{page}` for the page; both are
    /// escaped as within a text of JSON. Its `Content-Type` is `application/json`, unless `headers` has
    /// another one.
    #[serde(default)]
    body: Option<String>,
    /// Additional headers of the requests, for example `{Accept: application/json}`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The credentials of the requests: `user` and `password`, `bearer`, `api_key` or `token`. By default
    /// those of `url` (`https://USER:PASSWORD@HOST`) are sent, if it has any.
    #[serde(default)]
    auth: Option<Auth>,
    /// TLS options, for a URL with `https://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
    /// How long an answer may take, with its body. The default is 30 s.
    #[serde(default = "defaults::half_a_minute")]
    timeout: TimeSpan,
    /// The time between the beginnings of two polls, for example `1m`. A time that comes during a poll is
    /// left out. By default there is one poll.
    #[serde(default)]
    every: Option<TimeSpan>,
    /// How the body is cut into messages. `{}` makes each line a message. By default the whole body is one
    /// message.
    #[serde(default)]
    framing: Option<StreamFraming>,
    /// The place of a JSON array in the body, whose elements are the messages: for example `data.items`, or
    /// `.` if the body is the array. Elements keep their JSON text, except that texts lose their quotes and
    /// escapes.
    #[serde(default)]
    array_field: Option<JsonPath>,
    /// The character set of the body, such as `latin1` (as `windows-1252`), `utf-16` or `shift_jis`. Messages
    /// are in UTF-8: a message that is not valid leaves by the `errors` output. The default is `utf-8`, which
    /// is passed on as it is. A byte order mark at the start is removed. A `charset` in the header
    /// `Content-Type` has no effect.
    #[serde(default)]
    charset: Charset,
    /// With `framing` or `array_field`: the largest message, in bytes. Of a larger one, the first 4 KiB leave
    /// by the `errors` output.
    #[serde(default = "defaults::limit")]
    max_message_bytes: ByteSize,
    /// The largest body, in bytes after decompression. A larger one is an error, and so is one that can never
    /// fit into three quarters of `memory`. The default is 16 MiB.
    #[serde(default = "sixteen_mebibytes")]
    max_body_bytes: ByteSize,
    /// How an answer names the next page. By default there is one page.
    #[serde(default)]
    pages: Option<Pages>,
    /// A value of the last poll that the next one sends, so that the server answers with what is new. The
    /// server must answer with the oldest messages first, and only with those behind the cursor: if it
    /// answers with those at the cursor as well, they come again with each poll (`dedupe` removes them). A
    /// message that the server gets later, at the cursor or before it, is left out: choose a value that only
    /// grows, such as a number or the time of the entry at the server.
    #[serde(default)]
    cursor: Option<Cursor>,
}

/// An HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum Verb {
    /// Without a body, as a rule.
    Get,
    /// With a body.
    Post,
}

/// A value of the last poll.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cursor {
    /// The place of the value, a text or a number: for example `id`, or `paging.since`. `.` is a message that
    /// is itself the value. A value may have up to 8 KiB.
    field: JsonPath,
    /// Where the value is: in the last `message` of a poll, which is JSON (the default), or in the `body` of
    /// its last page. A body without the value leaves the cursor as it was; a message without it is an error,
    /// since the next poll would fetch the same again. Messages that are too large are not looked at.
    #[serde(default)]
    from: Origin,
    /// The parameter of the query that gets the cursor. By default `{cursor}` in `body` does.
    #[serde(default)]
    parameter: Option<String>,
    /// The cursor of the first poll. By default the first poll has no cursor.
    #[serde(default)]
    initial: Option<String>,
}

/// Where a cursor is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Origin {
    /// In the last message.
    #[default]
    Message,
    /// In the body of the answer.
    Body,
}

fn sixteen_mebibytes() -> ByteSize {
    ByteSize::mib(16)
}

impl HttpClient {
    fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            url: &self.url,
            headers: &self.headers,
            auth: self.auth.as_ref(),
            timeout: self.timeout.duration(),
            tls: &self.tls,
        }
    }

    fn verb(&self) -> Verb {
        self.method.unwrap_or(if self.body.is_some() { Verb::Post } else { Verb::Get })
    }

    /// True if a poll asks whether the answer has changed. Of several pages, the first says nothing of the
    /// others.
    fn is_conditional(&self) -> bool {
        self.pages.is_none() && self.verb() == Verb::Get
    }

    /// True if the body of requests has this placeholder.
    fn body_has(&self, placeholder: &str) -> bool {
        self.body.as_ref().is_some_and(|body| body.contains(placeholder))
    }

    /// True if a saved page can be one of these options, which may have changed since.
    fn may_have(&self, page: &Page) -> bool {
        let Some(pages) = &self.pages else { return false };
        let has_token = pages.parameter().is_some() || self.body_has(PAGE);
        match (pages.by, page) {
            (By::Link, Page::Url(_)) | (By::Number | By::Offset, Page::Number(_)) => true,
            (By::Field, Page::Url(_)) => !has_token,
            (By::Field, Page::Token(_)) => has_token,
            _ => false,
        }
    }

    fn mistake_of_content(&self) -> Option<Mistake> {
        let array = self.array_field.as_ref()?;
        if self.framing.is_some() {
            let mistake =
                Mistake::new("array_field", "A body is cut by `framing` or `array_field`, not both.");
            return Some(mistake.help("Leave out one of them."));
        }
        (!self.charset.is_utf8()).then(|| {
            let message = format!("JSON is in UTF-8, so `{array}` cannot be found in another character set.");
            Mistake::new("charset", message).help("Leave it out.")
        })
    }

    fn mistake_of_pages(&self) -> Option<Mistake> {
        let pages = self.pages.as_ref()?;
        let is_whole = self.framing.is_none() && self.array_field.is_none();
        if matches!(pages.by, By::Number | By::Offset) && is_whole {
            let message = "The last page is one without messages, but here each body is a message.";
            return Some(Mistake::new("pages", message).help("Add `framing: {}` or `array_field`."));
        }
        pages.mistake()
    }

    fn mistake_of_cursor(&self) -> Option<Mistake> {
        let Some(cursor) = &self.cursor else {
            return self.body_has(CURSOR).then(|| {
                let mistake = Mistake::new("body", "There is no `cursor` that `{cursor}` stands for.");
                mistake.help("For example `cursor: { field: id, initial: \"0\" }`.")
            });
        };
        let page = self.pages.as_ref().and_then(Pages::parameter).filter(|_| !self.body_has(PAGE));
        let (message, help) = match (&cursor.parameter, self.body_has(CURSOR)) {
            (Some(parameter), false) if page == Some(parameter.as_str()) => {
                ("The page has the same parameter, and would replace the cursor.", "Give them two names.")
            }
            (None, false) => ("No request has the cursor.", "Give its `parameter`, for example `since`."),
            (Some(_), true) => {
                ("The cursor is in the query and in the body.", "Leave out `parameter` or `{cursor}`.")
            }
            (None, true) if cursor.initial.is_none() => (
                "The first request has no cursor to put into its body.",
                "Give `initial`, for example `\"0\"`.",
            ),
            _ => return None,
        };
        Some(Mistake::new("cursor", message).help(help))
    }
}

impl Component for HttpClient {
    const NAME: &'static str = "http_client";
    const EXAMPLE: &'static str = r#"
sources:
  orders:
    http_client:
      url: "http://127.0.0.1:8000/orders"
      array_field: items
      pages: { by: link }
      cursor: { field: id, parameter: after }
pipelines:
  main: { from: orders, to: all }
sinks:
  all: { file: { path: out/orders.jsonl } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.endpoint().check();
        if self.every.is_some_and(|every| every.is_zero()) {
            let mistake = Mistake::new("every", "`every` cannot be 0.");
            mistakes.push(mistake.help("Leave it out, or write for example `1m`."));
        }
        if self.method == Some(Verb::Get) && self.body.is_some() {
            let mistake = Mistake::new("body", "A request with GET has no body.");
            mistakes.push(mistake.help("Leave it out, or use `method: POST`."));
        }
        if self.max_body_bytes.bytes() == 0 {
            let mistake = Mistake::new("max_body_bytes", "No answer has 0 bytes.");
            mistakes.push(mistake.help("The default is `16MiB`."));
        }
        if let Some(framing) = &self.framing {
            mistakes.extend(framing.check(self.max_message_bytes));
        }
        if self.body_has(PAGE) && !self.pages.as_ref().is_some_and(Pages::has_value) {
            let mistake = Mistake::new("body", "No page has a value that `{page}` stands for.");
            mistakes.push(mistake.help("For example `pages: { by: number }`."));
        }
        mistakes.extend(self.mistake_of_content());
        mistakes.extend(self.mistake_of_pages());
        mistakes.extend(self.mistake_of_cursor());
        mistakes
    }
}

impl SourceConfig for HttpClient {
    fn endless(&self) -> Option<Endless> {
        Endless::by("every", self.every.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn blocks(&self) -> bool {
        false
    }

    // Without a cursor, a later poll gets what the server has by then.
    fn resends(&self) -> bool {
        self.cursor.is_some() || self.every.is_none()
    }

    fn starts_over(&self) -> bool {
        self.every.is_none()
    }

    fn rereads(&self) -> bool {
        self.resends()
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn remarks(&self) -> Vec<Mistake> {
        long_time("timeout", self.timeout).into_iter().collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.files()
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(poll::Client::new(self.clone())))
    }
}
