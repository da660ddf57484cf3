//! Bounds on what a server may answer.
//!
//! Most answers are read as a whole before they are parsed: listings, states, errors. A server decides on
//! their length, so their length has a bound here. Bytes of objects have none: the reader of a range takes
//! them as they arrive.
//!
//! A page of a listing names the next one. A server that names an earlier page would be asked for ever.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use futures_util::{FutureExt, StreamExt};
use http::{Method, Request, Response, header};
use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter};
use parking_lot::Mutex;

/// The maximum length of an answer. A page of 1000 names of 1024 bytes takes about half of it.
const LONGEST: u64 = 8 << 20;
/// The maximum length of the answer for a folder of a WebDAV server, which has no pages. It holds about
/// 50,000 names.
const LONGEST_FOLDER: u64 = 32 << 20;

/// The maximum length of a header. OpenDAL panics if an entity tag has more than 64 KiB.
const LONGEST_HEADER: usize = 16 << 10;

/// Ends answers that are too long with an error.
pub(crate) struct Bounded {
    pub inner: HttpTransporter,
}

impl HttpTransport for Bounded {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let is_range = request.headers().contains_key(header::RANGE);
        let most = match request.method().as_str() == "PROPFIND" {
            true => LONGEST_FOLDER,
            false => LONGEST,
        };
        let has_body = *request.method() != Method::HEAD;
        let response = self.inner.fetch(request).await?;
        if let Some((name, _)) = response.headers().iter().find(|(_, value)| value.len() > LONGEST_HEADER) {
            let why = format!(
                "the header `{name}` is longer than {} KiB, the most that is read",
                LONGEST_HEADER >> 10
            );
            return Err(Error::new(ErrorKind::Unexpected, why));
        }
        if !has_body || (is_range && response.status().is_success()) {
            return Ok(response);
        }
        Ok(response.map(|body| bounded(body, most)))
    }
}

/// Returns the result of work on an answer. OpenDAL panics if a name in a listing has more than 64 KiB; that
/// is an error of the server. (Rejected: to look for long names before. They may be in several pieces of
/// XML.)
pub(crate) async fn guarded<T>(work: impl Future<Output = opendal::Result<T>>) -> opendal::Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unexpected, "the answer cannot be used: a name in it is too long"))
    })
}

fn bounded(body: HttpBody, most: u64) -> HttpBody {
    let mut length = 0;
    body.map_inner(move |pieces| {
        Box::new(pieces.map(move |piece| {
            let piece = piece?;
            length += piece.len() as u64;
            match length > most {
                true => Err(Error::new(
                    ErrorKind::Unexpected,
                    format!("the answer is longer than {} MiB, the most that is read", most >> 20),
                )),
                false => Ok(piece),
            }
        }))
    })
}

/// The number of pages without an entry in a row, after which a listing fails. A store may skip many removed
/// objects in one page.
const MOST_EMPTY: u32 = 1000;

/// Fails a request for a page of a listing that was requested before, and one after too many empty pages.
pub(crate) struct Pages {
    pub inner: HttpTransporter,
    pub requested: Mutex<Cycle>,
    /// The number of pages since the last entry.
    pub empty: Arc<AtomicU32>,
}

impl HttpTransport for Pages {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let mut page = DefaultHasher::new();
        request.uri().hash(&mut page);
        if request.method() == Method::GET && self.requested.lock().repeats(page.finish()) {
            let why = "the store names a page of the listing as the next one that it has sent before";
            return Err(Error::new(ErrorKind::Unexpected, why));
        }
        if self.empty.fetch_add(1, Relaxed) >= MOST_EMPTY {
            let why = format!("the store has sent {MOST_EMPTY} pages of the listing in a row without a name");
            return Err(Error::new(ErrorKind::Unexpected, why));
        }
        self.inner.fetch(request).await
    }
}

/// Notices that a sequence repeats itself. It remembers only one value, which it replaces after 1, 2, 4, 8…
/// further values (Brent's method), so that a listing of any length takes no memory.
#[derive(Debug, Default)]
pub(crate) struct Cycle {
    remembered: Option<u64>,
    since: u64,
    until: u64,
}

impl Cycle {
    /// Adds a value. Returns true if it is the remembered one.
    fn repeats(&mut self, value: u64) -> bool {
        if self.remembered == Some(value) {
            return true;
        }
        self.since += 1;
        if self.since >= self.until {
            *self = Self { remembered: Some(value), since: 0, until: (2 * self.until).max(1) };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Cycle;

    #[test]
    fn a_sequence_that_repeats_itself_is_noticed_and_no_other() {
        for (start, length) in [(0, 1), (1, 1), (3, 2), (100, 7), (5, 1000)] {
            let mut cycle = Cycle::default();
            let mut values =
                (0_u64..).map(|at| if at < start { at } else { start + (at - start) % length }).enumerate();
            let (noticed, _) = values.find(|(_, value)| cycle.repeats(*value)).unwrap();
            let first = usize::try_from(start + length).unwrap();
            assert!((first..4 * first + 4).contains(&noticed), "{start} {length}: {noticed}");
        }
        let mut cycle = Cycle::default();
        assert!(!(0..100_000).any(|value| cycle.repeats(value)));
    }
}
