//! How an answer names the next page.

use hyper::StatusCode;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::Mistake;

use super::near::{FROM_ELSEWHERE, is_near};
use super::place::Page;
use crate::json_path::JsonPath;

/// The usual status of a page that does not exist.
const END_STATUS: u16 = 404;

/// The longest link or token, in bytes.
const LONGEST: usize = 16 << 10;

/// How an answer names the next page.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Pages {
    /// How the next page is named: by the `link` in the header `Link` with `rel="next"`; by a `field` of the
    /// body; by its `number`; or by the `offset` of its first message.
    pub(super) by: By,
    /// With `by: field`: the place of the next page in the body, for example `paging.next`. It is a URL, or
    /// with `parameter` a token. Without it, with `null`, or if it is the same again, the page is the last.
    #[serde(default)]
    field: Option<JsonPath>,
    /// The parameter of the query that gets the token, number or offset. The default is `page` with `by:
    /// number` and `offset` with `by: offset`. No parameter is sent if `body` has `{page}`.
    #[serde(default)]
    parameter: Option<String>,
    /// The first number or offset. The default is 1 with `by: number`, and 0 with `by: offset`.
    #[serde(default)]
    start: Option<u64>,
    /// With `by: number` and `by: offset`: the number of messages of a full page. A page with fewer is the
    /// last. By default the last page is one without messages, also an answer 204, or the one before the
    /// `end_status`. If messages are removed at the server meanwhile, others move to pages that were read,
    /// and are left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    size: Option<u64>,
    /// With `by: number` and `by: offset`: the status of an answer that says that there is no such page.
    /// After the first page it is the end of the pages, and no error. For the first page it is an error. The
    /// default is 404; some servers answer 400. `204`, which is always a page without messages, makes each
    /// 4xx an error.
    #[serde(default)]
    #[schemars(range(min = 204, max = 499))]
    end_status: Option<u16>,
}

/// How the next page is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// By the header `Link`.
    Link,
    /// By a field of the body.
    Field,
    /// By a number that grows by 1.
    Number,
    /// By the number of messages before it.
    Offset,
}

/// The parts of an answer that may name the next page.
pub(super) struct Said<'a> {
    /// The URL that answered.
    pub(super) url: &'a Url,
    /// The link to the next page.
    pub(super) link: Option<&'a str>,
    /// The body, if it is text.
    pub(super) body: Option<&'a str>,
    /// The number of its messages.
    pub(super) messages: u64,
}

impl Pages {
    /// Returns the mistake that the schema cannot find.
    pub(super) fn mistake(&self) -> Option<Mistake> {
        let is_counted = matches!(self.by, By::Number | By::Offset);
        let (message, help) = match self.by {
            By::Field if self.field.is_none() => {
                ("The `field` of the next page is missing.", "For example `field: paging.next`.")
            }
            By::Link | By::Number | By::Offset if self.field.is_some() => {
                ("`field` is for `by: field`.", "Leave it out.")
            }
            By::Link if self.parameter.is_some() => ("A link needs no `parameter`.", "Leave it out."),
            _ if !is_counted && self.start.is_some() => {
                ("`start` is for `by: number` and `by: offset`.", "Leave it out.")
            }
            _ if !is_counted && self.size.is_some() => {
                ("`size` is for `by: number` and `by: offset`.", "Leave it out.")
            }
            _ if !is_counted && self.end_status.is_some() => {
                ("`end_status` is for `by: number` and `by: offset`.", "Leave it out.")
            }
            _ if self.end_status.is_some_and(|status| !may_be_end(status)) => (
                "A server does not say with this status that there is no such page.",
                "The default is `404`.",
            ),
            _ => return None,
        };
        Some(Mistake::new("pages", message).help(help))
    }

    /// True if an answer with this status to the request for a page says that the page before was the last.
    pub(super) fn ends_with(&self, status: StatusCode, page: Option<&Page>) -> bool {
        // The first page has no name yet.
        matches!((self.by, page), (By::Number | By::Offset, Some(Page::Number(_))))
            && self.end_status.unwrap_or(END_STATUS) == status.as_u16()
    }

    /// True if a page has a number, an offset or a token.
    pub(super) fn has_value(&self) -> bool {
        self.by != By::Link
    }

    /// Returns the parameter of the query that names the page.
    pub(super) fn parameter(&self) -> Option<&str> {
        self.parameter.as_deref().or(match self.by {
            By::Number => Some("page"),
            By::Offset => Some("offset"),
            By::Link | By::Field => None,
        })
    }

    /// Returns the first page, if it has a name.
    pub(super) fn first(&self) -> Option<Page> {
        match self.by {
            By::Number => Some(Page::Number(self.start.unwrap_or(1))),
            By::Offset => Some(Page::Number(self.start.unwrap_or(0))),
            By::Link | By::Field => None,
        }
    }

    /// Returns the page after this one, if there is one. `is_in_body` is true if the body of requests has the
    /// token of the page.
    ///
    /// # Errors
    /// The reason if the answer names no page.
    pub(super) fn next(
        &self,
        page: Option<&Page>,
        said: &Said<'_>,
        is_in_body: bool,
    ) -> Result<Option<Page>, String> {
        // A last page may lead to itself.
        let other = |next: Option<Page>| next.filter(|next| Some(next) != page);
        match self.by {
            By::Link => said.link.map_or(Ok(None), |link| linked(said.url, link)).map(other),
            By::Field => {
                let Some(field) = &self.field else { return Ok(None) };
                let found = match said.body {
                    None => Err("is not UTF-8".to_owned()),
                    // An answer without messages may have no body.
                    Some("") => Ok(None),
                    Some(body) => field.text(body),
                };
                let found = found.map_err(|reason| format!("`{field}`: the body {reason}"))?;
                let Some(found) = found.filter(|text| !text.is_empty() && text != "false") else {
                    return Ok(None);
                };
                if self.parameter.is_none() && !is_in_body {
                    return linked(said.url, &found).map(other);
                }
                Ok(other(Some(Page::Token(short(&found)?.to_owned()))))
            }
            By::Number | By::Offset => {
                let is_last = said.messages == 0 || self.size.is_some_and(|size| said.messages < size);
                let step = if self.by == By::Number { 1 } else { said.messages };
                Ok(match page {
                    Some(Page::Number(number)) if !is_last => Some(Page::Number(number.saturating_add(step))),
                    _ => None,
                })
            }
        }
    }
}

/// True for a status that can mean that there is no such page. After some, the request is repeated.
fn may_be_end(status: u16) -> bool {
    matches!(status, 204 | 400..=499) && !matches!(status, 401 | 403 | 407 | 408 | 429)
}

/// Returns the page that a URL leads to. None if it is the URL of the answer.
fn linked(url: &Url, link: &str) -> Result<Option<Page>, String> {
    let next = target(url, short(link)?)?;
    Ok((next != *url).then(|| Page::Url(next.into())))
}

fn short(text: &str) -> Result<&str, String> {
    match text.len() > LONGEST {
        true => Err(format!("the name of the next page has {} bytes, more than {LONGEST}", text.len())),
        false => Ok(text),
    }
}

/// Returns the URL that a link in an answer leads to.
///
/// # Errors
/// If it is none of HTTP, or leads from HTTPS to HTTP, or from elsewhere to this machine or its link. The
/// addresses of a name are looked at by [`check`](super::near::check), before the request.
pub(super) fn target(url: &Url, link: &str) -> Result<Url, String> {
    let next = url.join(link).map_err(|error| format!("a link is not a URL: {error}"))?;
    match (url.scheme(), next.scheme()) {
        ("https", "http") => Err("a link leads from HTTPS to HTTP".to_owned()),
        (_, "http" | "https") if is_near(&next) && !is_near(url) => Err(FROM_ELSEWHERE.to_owned()),
        (_, "http" | "https") => Ok(next),
        _ => Err("a link leads to something that is not HTTP".to_owned()),
    }
}

/// Sets a parameter of the query. The others stay as they are, unless the URL has it already.
pub(super) fn set_parameter(url: &mut Url, name: &str, value: &str) {
    let is_there = url.query_pairs().any(|(known, _)| known == name);
    if is_there {
        let others = url.query_pairs().filter(|(known, _)| known != name);
        let others: Vec<(String, String)> =
            others.map(|(known, value)| (known.into_owned(), value.into_owned())).collect();
        url.query_pairs_mut().clear().extend_pairs(others);
    }
    url.query_pairs_mut().append_pair(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::options;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn next(yaml: &str, page: Option<&Page>, body: &str, messages: u64) -> Result<Option<Page>, String> {
        let at = url("https://a/x?q=1");
        let said = Said { url: &at, link: Some("/y?p=2"), body: Some(body), messages };
        options::<Pages>(yaml).next(page, &said, false)
    }

    #[test]
    fn each_kind_names_the_next_page() {
        let link = Ok(Some(Page::Url("https://a/y?p=2".to_owned())));
        assert_eq!(next("{ by: link }", None, "", 1), link);
        let by_url = "{ by: field, field: next }";
        assert_eq!(next(by_url, None, "{\"next\": \"/y?p=2\"}", 1), link);
        for last in
            ["{}", "{\"next\": null}", "{\"next\": \"\"}", "{\"next\": false}", "{\"next\": \"?q=1\"}"]
        {
            assert_eq!(next(by_url, None, last, 1), Ok(None), "{last}");
        }
        let token = |text: &str| Page::Token(text.to_owned());
        let by_token = "{ by: field, field: next, parameter: after }";
        assert_eq!(next(by_token, None, "{\"next\": 7}", 0), Ok(Some(token("7"))));
        assert_eq!(next(by_token, Some(&token("7")), "{\"next\": 7}", 1), Ok(None));
        // A redirection leads to the page, which leads to what was asked for.
        let asked = Page::Url("https://a/y?p=2".to_owned());
        assert_eq!(next("{ by: link }", Some(&asked), "", 1), Ok(None));
        assert_eq!(next(by_url, Some(&asked), "{\"next\": \"/y?p=2\"}", 1), Ok(None));
        assert_eq!(next(by_url, Some(&asked), "", 0), Ok(None));
        let at = |number| Some(Page::Number(number));
        assert_eq!(next("{ by: number }", at(3).as_ref(), "", 1), Ok(at(4)));
        assert_eq!(next("{ by: offset, size: 5 }", at(10).as_ref(), "", 5), Ok(at(15)));
        assert_eq!(next("{ by: offset, size: 5 }", at(10).as_ref(), "", 4), Ok(None));
        assert_eq!(next("{ by: number }", at(3).as_ref(), "", 0), Ok(None));
    }

    #[test]
    fn a_status_ends_counted_pages_after_the_first() {
        let ends = |yaml: &str, status: u16, page: Option<&Page>| {
            options::<Pages>(yaml).ends_with(StatusCode::from_u16(status).unwrap(), page)
        };
        let second = Some(&Page::Number(2));
        assert!(ends("{ by: number }", 404, second) && ends("{ by: offset, size: 2 }", 404, second));
        assert!(ends("{ by: number, end_status: 400 }", 400, second));
        assert!(!ends("{ by: number }", 404, None) && !ends("{ by: number }", 400, second));
        assert!(!ends("{ by: number, end_status: 204 }", 404, second));
        let token = Some(&Page::Token("t".to_owned()));
        assert!(!ends("{ by: field, field: next }", 404, token));
        let mistake = |yaml: &str| options::<Pages>(yaml).mistake().is_some();
        assert!(mistake("{ by: link, end_status: 404 }") && mistake("{ by: number, end_status: 429 }"));
        assert!(!mistake("{ by: number, end_status: 204 }") && !mistake("{ by: offset, end_status: 416 }"));
    }

    #[test]
    fn what_names_no_page_has_a_reason() {
        let reason = |body: &str| next("{ by: field, field: next }", None, body, 1).unwrap_err();
        assert_eq!(reason("{\"next\": [1]}"), "`next`: the body has an object or an array there");
        assert_eq!(reason("{\"next\": \"http://a/\"}"), "a link leads from HTTPS to HTTP");
        assert_eq!(
            reason("{\"next\": \"file:///etc/passwd\"}"),
            "a link leads to something that is not HTTP"
        );
        let at = url("https://a/x");
        let binary = Said { url: &at, link: None, body: None, messages: 1 };
        let pages = options::<Pages>("{ by: field, field: next }");
        assert_eq!(pages.next(None, &binary, false).unwrap_err(), "`next`: the body is not UTF-8");
        let long = format!("{{\"next\": \"{}\"}}", "x".repeat(LONGEST + 1));
        assert_eq!(reason(&long), "the name of the next page has 16385 bytes, more than 16384");
    }

    #[test]
    fn only_a_near_server_leads_to_near_addresses() {
        for near in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0.0.0.0:8/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fe80::1]/",
            "http://localhost:8/",
            "http://a.LOCALHOST./",
        ] {
            let reason = target(&url("http://a.example/"), near).unwrap_err();
            assert_eq!(reason, "a link leads from another machine to this one, or to a link-local address");
            assert_eq!(target(&url("http://127.0.0.1:9/"), near).unwrap(), url(near));
        }
        for far in ["http://b.example/", "http://10.0.0.1/", "/x", "http://localhost.example/"] {
            assert!(target(&url("http://a.example/"), far).is_ok(), "{far}");
        }
    }

    #[test]
    fn a_parameter_is_set_and_the_others_stay() {
        for (before, after) in [
            ("http://a/", "http://a/?p=a+b"),
            ("http://a/?x=%20&y", "http://a/?x=%20&y&p=a+b"),
            ("http://a/?p=1&x=2&p=3", "http://a/?x=2&p=a+b"),
        ] {
            let mut url = url(before);
            set_parameter(&mut url, "p", "a b");
            assert_eq!(url.as_str(), after);
        }
    }
}
