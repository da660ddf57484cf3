//! One request for a page, and its answer.

use std::sync::OnceLock;

use arrow_buffer::Buffer;
use hyper::StatusCode;
use reqwest::header::{
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LINK, LOCATION,
};
use reqwest::{Method, Response, Url};
use thalweg_codec::json::write_text;
use thalweg_engine::{Error, SourceOutput};

use super::near::Guard;
use super::pages::{Pages, set_parameter, target};
use super::place::{Page, Place};
use super::{CURSOR, HttpClient, PAGE, Verb, link, near};
use crate::requests::{Compression, Failure, Request, Verdict};
use crate::web::{Bodies, Refusal, Wrapping};

/// How many redirections are followed.
const REDIRECTIONS: usize = 10;

/// The longest header that a later request sends back, in bytes. It is a part of each checkpoint.
const LONGEST_VALIDATOR: usize = 4 << 10;

/// How many bytes are read of an answer that has no messages.
const MOST_REFUSAL: usize = 64 << 10;

/// Asks for pages.
pub(super) struct Asker {
    pub(super) config: HttpClient,
    pub(super) request: Request,
}

/// The answer to a request for a page.
pub(super) enum Fetched {
    /// It has not changed since the last poll.
    Unchanged,
    /// The server does not have this page, for this reason. It may have others.
    Gone(Failure),
    /// The page before was the last.
    End,
    /// It is here.
    Page(Body),
}

/// A page.
pub(super) struct Body {
    /// The URL that answered.
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Buffer,
}

impl Body {
    /// Returns the link to the next page.
    pub(super) fn link(&self) -> Option<String> {
        self.headers.get_all(LINK).iter().find_map(|value| link::next(&text(value)).map(str::to_owned))
    }

    /// Returns a header that a later request sends back.
    pub(super) fn validator(&self, name: HeaderName) -> Option<String> {
        let text = self.headers.get(name)?.to_str().ok()?;
        (text.len() <= LONGEST_VALIDATOR).then(|| text.to_owned())
    }
}

impl Asker {
    pub(super) fn new(config: HttpClient) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        let method = match config.verb() {
            Verb::Get => Method::GET,
            Verb::Post => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Method::POST
            }
        };
        let endpoint = config.endpoint();
        let client = match Guard::of(&endpoint.url().map_err(Error::permanent)?) {
            Some(guard) => OnceLock::from(endpoint.client_with(guard)?),
            None => OnceLock::new(),
        };
        let request = endpoint.request(method, headers, Compression::None, MOST_REFUSAL, &client)?;
        Ok(Self { config, request })
    }

    /// Fetches the page of a place.
    pub(super) async fn fetch(&self, place: &Place, out: &SourceOutput) -> Result<Fetched, Failure> {
        let response = self.ask(place).await?;
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED {
            // Otherwise it would leave out messages without a sign.
            return match self.is_conditional(place) {
                true => Ok(Fetched::Unchanged),
                false => {
                    Err(self.failed("the status 304 answers a request that does not ask for what is new"))
                }
            };
        }
        if !status.is_success() {
            let answer = self.request.answer(response).await;
            return match self.request.by_status(&answer) {
                Verdict::Again(failure) => Err(failure),
                _ if self.is_end(place, status) => Ok(Fetched::End),
                _ => {
                    let refused = Failure::from(Error::permanent(self.request.text(&answer)));
                    let is_gone =
                        [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::GONE].contains(&status);
                    if is_gone { Ok(Fetched::Gone(refused)) } else { Err(refused) }
                }
            };
        }
        let (url, headers) = (response.url().clone(), response.headers().clone());
        let wrapping = Wrapping::of(&headers).map_err(|refusal| self.unread(&refusal))?;
        let bodies = Bodies {
            most: self.config.max_body_bytes,
            read_timeout: self.config.timeout.duration(),
            memory_timeout: None,
        };
        let read = bodies.read(reqwest::Body::from(response), wrapping, out).await;
        let (memory, lease) = read.map_err(|refusal| self.unread(&refusal))?;
        Ok(Fetched::Page(Body { url, headers, body: lease.freeze(memory) }))
    }

    /// True if an answer with this status says that there are no more pages. Of a page that was sent in part,
    /// the rest is missing.
    fn is_end(&self, place: &Place, status: StatusCode) -> bool {
        let pages = self.config.pages.as_ref();
        place.sent == 0 && pages.is_some_and(|pages| pages.ends_with(status, place.page.as_ref()))
    }

    /// Sends the request for a page, and follows redirections.
    async fn ask(&self, place: &Place) -> Result<Response, Failure> {
        let mut url = self.url(place)?;
        for _ in 0..=REDIRECTIONS {
            let response = self.send(&url, place).await?;
            let Some(to) = self.redirection(&response) else { return Ok(response) };
            url = target(&url, &to).map_err(|reason| self.failed(&reason))?;
        }
        Err(self.failed(&format!("there are more than {REDIRECTIONS} redirections")))
    }

    /// Sends one request. Another server than that of the options gets no credentials.
    async fn send(&self, url: &Url, place: &Place) -> Result<Response, Failure> {
        let mut built = self.request.client.request(self.request.method.clone(), url.clone());
        if url.origin() != self.request.url.origin() {
            let checked = near::check(&self.request.url, url, self.config.timeout.duration()).await;
            checked.map_err(|reason| self.failed(&reason))?;
            return match self.request.method == Method::GET {
                true => self.request.open_bare(built).await,
                false => {
                    Err(self
                        .failed("a link or redirection leads to another server, which does not get the body"))
                }
            };
        }
        if self.config.is_conditional() {
            let validators = [(IF_NONE_MATCH, &place.etag), (IF_MODIFIED_SINCE, &place.last_modified)];
            for (name, value) in validators {
                // A value that came in a header can be sent in one.
                if let Some(value) = value.as_ref().and_then(|value| HeaderValue::from_str(value).ok()) {
                    built = built.header(name, value);
                }
            }
        }
        if let Some(body) = self.body(place) {
            built = built.body(body);
        }
        self.request.open(built).await
    }

    /// True if the request for the page of a place asks whether the answer has changed. `headers` of the
    /// options may do that too.
    fn is_conditional(&self, place: &Place) -> bool {
        let has_validator = place.etag.is_some() || place.last_modified.is_some();
        let has_header =
            [IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|name| self.request.headers.contains_key(name));
        (self.config.is_conditional() && has_validator) || (place.page.is_none() && has_header)
    }

    /// Returns where an answer redirects to. A request with a body is only repeated if the answer says so.
    fn redirection(&self, response: &Response) -> Option<String> {
        let is_followed = match response.status() {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => {
                self.request.method == Method::GET
            }
            _ => false,
        };
        let location = response.headers().get(LOCATION).filter(|_| is_followed)?;
        Some(text(location))
    }

    /// Returns the URL of a page.
    fn url(&self, place: &Place) -> Result<Url, Failure> {
        if let Some(Page::Url(url)) = &place.page {
            return Url::parse(url)
                .map_err(|error| self.failed(&format!("the saved page is no URL: {error}")));
        }
        let mut url = self.request.url.clone();
        let cursor = self.config.cursor.as_ref().and_then(|cursor| cursor.parameter.as_deref());
        if let (Some(parameter), Some(value)) = (cursor, self.cursor(place)) {
            set_parameter(&mut url, parameter, value);
        }
        if let Some((pages, page)) = self.page(place).filter(|_| !self.config.body_has(PAGE))
            && let (Some(parameter), Some(value)) = (pages.parameter(), page.value())
        {
            set_parameter(&mut url, parameter, &value);
        }
        Ok(url)
    }

    /// Returns the body of a request. Values are escaped, so that none can change the rest of the body.
    fn body(&self, place: &Place) -> Option<String> {
        let page = self.page(place).and_then(|(_, page)| page.value()).unwrap_or_default();
        let values = [(CURSOR, escaped(self.cursor(place).unwrap_or_default())), (PAGE, escaped(&page))];
        let (mut filled, mut rest) = (String::new(), self.config.body.as_deref()?);
        // In one pass: a value may look like a placeholder.
        loop {
            let found = values.iter().filter_map(|(name, value)| Some((rest.find(name)?, name, value)));
            let Some((at, name, value)) = found.min_by_key(|(at, ..)| *at) else { break };
            let (before, after) = rest.split_at(at);
            filled.push_str(before);
            filled.push_str(value);
            rest = after.strip_prefix(name).unwrap_or_default();
        }
        filled.push_str(rest);
        Some(filled)
    }

    fn cursor<'a>(&'a self, place: &'a Place) -> Option<&'a str> {
        let initial = self.config.cursor.as_ref().and_then(|cursor| cursor.initial.as_deref());
        place.cursor.as_deref().or(initial)
    }

    /// Returns the page of a place, if it has a name.
    fn page(&self, place: &Place) -> Option<(&Pages, Page)> {
        let pages = self.config.pages.as_ref()?;
        Some((pages, place.page.clone().or_else(|| pages.first())?))
    }

    fn unread(&self, refusal: &Refusal) -> Failure {
        let (server, reason) = (self.request.server(), &refusal.reason);
        match refusal.status {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let text = format!(
                    "the answer of {server} is larger than `max_body_bytes` ({}), or than three quarters of \
                     `memory`, of which a compressed one needs more; ask for smaller pages, or raise the limit",
                    self.config.max_body_bytes
                );
                Error::permanent(text).into()
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Error::permanent(format!("cannot read the answer of {server}: {reason}")).into()
            }
            _ => Failure::temporary(format!("cannot read the answer of {server}: {reason}")),
        }
    }

    /// A failure that stays as it is when the request is repeated.
    pub(super) fn failed(&self, reason: &str) -> Failure {
        Error::permanent(format!("cannot use the answer of {}: {reason}", self.request.server())).into()
    }
}

/// Returns the value of a header that is a link: servers write other characters than ASCII into it.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Returns a text as within a text of JSON.
fn escaped(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    write_text(text, &mut quoted);
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    String::from_utf8_lossy(inner).into_owned()
}
