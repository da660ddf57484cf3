//! Numbered records from a web server: as pages with links, and as server-sent events.

use crate::background::Background;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// About how many bytes an answer has. A longer record is alone.
const ANSWER: usize = 32 << 10;

type Body = Full<Bytes>;

/// A server for records, each of which is a line. Dropping it closes its connections.
///
/// `/records` answers with the first lines, and `/records?after=N` with those behind the record with the
/// number N; the header `Link` leads to the next ones. `/events` answers with events whose ids are the
/// numbers, behind that of the header `Last-Event-ID`; when there are no more, with 204.
pub struct WebRecords {
    background: Background,
}

impl WebRecords {
    /// Serves these records.
    pub fn serve(records: Vec<String>) -> io::Result<Self> {
        let records: Arc<[String]> = records.into();
        let background = Background::serve("web records", move |stream| {
            let records = records.clone();
            async move {
                let service = service_fn(move |request| {
                    let records = records.clone();
                    async move { Ok::<_, Infallible>(answer(&records, &request)) }
                });
                let _ = stream.set_nodelay(true);
                // A client that closes the connection is not an error here.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            }
        })?;
        Ok(Self { background })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.background.address
    }
}

fn answer(records: &[String], request: &Request<Incoming>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let after = query.split('&').find_map(|pair| pair.strip_prefix("after="));
    let last_id = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    match request.uri().path() {
        "/records" => page(records, first(after)),
        "/events" => events(records, first(last_id)),
        _ => empty(StatusCode::NOT_FOUND),
    }
}

/// Returns the index of the first record behind this number.
fn first(after: Option<&str>) -> usize {
    after.and_then(|number| number.parse::<usize>().ok()).map_or(0, |number| number.saturating_add(1))
}

/// Returns the indices of the records of an answer that begins with this one.
fn some(records: &[String], first: usize) -> std::ops::Range<usize> {
    let mut bytes = 0;
    let fits = |record: &&String| {
        let is_first = bytes == 0;
        bytes += record.len() + 1;
        is_first || bytes <= ANSWER
    };
    let count = records.get(first..).unwrap_or_default().iter().take_while(fits).count();
    first..first + count
}

fn page(records: &[String], first: usize) -> Response<Body> {
    let range = some(records, first);
    let lines: String =
        range.clone().filter_map(|number| Some(format!("{}\n", records.get(number)?))).collect();
    let mut response = Response::new(Full::new(Bytes::from(lines)));
    if range.end < records.len()
        && let Ok(link) = format!("</records?after={}>; rel=\"next\"", range.end - 1).parse()
    {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

fn events(records: &[String], first: usize) -> Response<Body> {
    let event = |number| Some(format!("id: {number}\ndata: {}\n\n", records.get::<usize>(number)?));
    let events: String = some(records, first).filter_map(event).collect();
    if events.is_empty() {
        return empty(StatusCode::NO_CONTENT);
    }
    let mut response = Response::new(Full::new(Bytes::from(events)));
    let kind = header::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_at_least_one_record_and_not_many_more_bytes_than_they_should() {
        let mut records: Vec<String> = (0..100).map(|number| format!("{number:0>1000}")).collect();
        records.push("x".repeat(50_000));
        assert_eq!(some(&records, 0), 0..32);
        assert_eq!(some(&records, 100), 100..101);
        assert_eq!((some(&records, 101), some(&records, 200)), (101..101, 200..200));
        assert_eq!((first(None), first(Some("7"))), (0, 8));
    }
}
