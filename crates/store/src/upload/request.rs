//! Builds and sends requests without OpenDAL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use opendal::Buffer;

use super::answer::Answer;
use super::remote::{Remote, Signing};
use super::{Body, OnExisting, Writing};
use crate::attempt::{AttemptError, patient};
use crate::transport::{Redirects, client, retry_after};
use crate::{Store, StoreError};

/// The number of bytes of a body that the connection gets at once. A sent piece shows that the server is
/// still reading.
const PIECE: usize = 256 << 10;
/// The assumed minimum speed in bytes per second at which a store writes received data to its disks, and the
/// maximum time for that.
const SLOWEST_STORING: u64 = 8 << 20;
const LONGEST_STORING: Duration = Duration::from_secs(600);

/// A request that is being built.
pub(super) struct Asking<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// The query after the `?`, escaped.
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    /// How many bytes the store must write to its disks before it replies.
    storing: u64,
}

impl<'a> Asking<'a> {
    pub(super) fn new(method: Method, path: &'a str, query: impl Into<String>) -> Self {
        Self {
            method,
            path,
            query: query.into(),
            headers: HeaderMap::new(),
            body: Body::default(),
            storing: 0,
        }
    }

    pub(super) fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self.storing = self.storing.max(self.body.len() as u64);
        self
    }

    /// Sets how many bytes the store must move before it replies.
    pub(super) fn storing(mut self, bytes: u64) -> Self {
        self.storing = bytes;
        self
    }

    /// Adds a header, unless the value is not valid in a header.
    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(super) fn headers(mut self, more: &HeaderMap) -> Self {
        self.headers.extend(more.clone());
        self
    }

    /// Adds the condition of the write, for Amazon and Microsoft.
    pub(super) fn on(self, writing: &Writing) -> Self {
        match &writing.on_existing {
            OnExisting::Replace => self,
            OnExisting::Keep => self.header("if-none-match", "*"),
            OnExisting::ReplaceIf(tag) => self.header("if-match", tag),
        }
    }
}

/// A piece of a body. It is dropped once it has been sent; the drop counts its bytes as sent.
struct Piece {
    bytes: Bytes,
    sent: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

fn in_pieces(body: &Body, sent: &Arc<AtomicU64>) -> Buffer {
    let pieces = body.pieces().iter().flat_map(|piece| {
        let cuts = (0..piece.len()).step_by(PIECE);
        cuts.map(|from| piece.slice(from..piece.len().min(from + PIECE)))
    });
    pieces.map(|bytes| Bytes::from_owner(Piece { bytes, sent: sent.clone() })).collect::<Vec<_>>().into()
}

/// Sends the request once.
pub(super) async fn ask(store: &Store, remote: &Remote, asking: &Asking<'_>) -> Result<Answer, AttemptError> {
    let name = store.name(asking.path);
    let failed = |why: String| {
        let what = "making a request".to_owned();
        AttemptError::Fatal(StoreError::Failed {
            name: name.clone(),
            what,
            attempts: 1,
            why,
            is_temporary: false,
        })
    };
    let sent = Arc::new(AtomicU64::new(0));
    let mut request = Request::new(in_pieces(&asking.body, &sent));
    *request.method_mut() = asking.method.clone();
    let url = remote.url(asking.path, &asking.query);
    *request.uri_mut() = url.parse().map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    request.headers_mut().extend(remote.always.clone());
    request.headers_mut().extend(asking.headers.clone());
    if asking.method != Method::GET {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(asking.body.len()));
    }
    let (mut head, body) = request.into_parts();
    let signed = match &remote.signing {
        Signing::None => Ok(()),
        Signing::Amazon(signer) => signer.sign(&mut head, None).await,
        Signing::Google(signer) => signer.sign(&mut head, None).await,
        Signing::Microsoft(signer) => signer.sign(&mut head, None).await,
    };
    if let Err(error) = signed {
        let why = format!("cannot get credentials: {error}");
        return Err(if error.is_retryable() {
            AttemptError::cut(why)
        } else {
            AttemptError::Fatal(StoreError::Denied { name, what: "written", why })
        });
    }
    // The client adds this header itself, in the form for its version of HTTP.
    head.headers.remove(header::HOST);
    store.counts().written.fetch_add(asking.body.len() as u64, Ordering::Relaxed);
    let silence = store.retries().silence;
    let storing = Duration::from_secs(asking.storing / SLOWEST_STORING).min(LONGEST_STORING);
    let mut sending = Box::pin(client_send(Request::from_parts(head, body)));
    loop {
        let before = sent.load(Ordering::Relaxed);
        match patient(silence + storing, &mut sending).await {
            Some(answered) => return answered,
            None if sent.load(Ordering::Relaxed) > before => {}
            None => return Err(AttemptError::silent(silence + storing)),
        }
    }
}

async fn client_send(request: Request<Buffer>) -> Result<Answer, AttemptError> {
    let answer = client(Redirects::Refused).send(request).await.map_err(|error| {
        let mut why = error.message().to_owned();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            why += &format!(": {cause}");
            source = cause.source();
        }
        // No reply: the network may be better later.
        AttemptError::cut(why)
    })?;
    let (head, body) = answer.into_parts();
    Ok(Answer {
        status: head.status,
        retry_after: retry_after(&head.headers),
        headers: head.headers,
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    })
}

impl Store {
    /// Runs `attempt`, and retries temporary failures. Also returns true if the store was overloaded
    /// meanwhile. Each attempt receives true if an earlier attempt failed: the store may then have done the
    /// request although its reply was lost.
    pub(super) async fn asking<T, F: Future<Output = Result<T, AttemptError>>>(
        &self,
        path: &str,
        what: &str,
        mut attempt: impl FnMut(bool) -> F,
    ) -> Result<(T, bool), StoreError> {
        let (mut failed, mut was_overloaded) = (0, false);
        loop {
            self.counts().request(failed > 0);
            let failure = match attempt(failed > 0).await {
                Ok(done) => return Ok((done, was_overloaded)),
                Err(failure) => failure,
            };
            was_overloaded |= matches!(failure, AttemptError::Temporary { overloaded: true, .. });
            failed += 1;
            let pause = self.pause(&self.name(path), what, failure, failed)?;
            tokio::time::sleep(pause).await;
        }
    }
}
