//! The bodies of requests, and whether one is still arriving.
//!
//! A connection that lost its place finishes its requests first. It must not wait for a client that sends a
//! byte of a body now and then, so it asks here whether all bodies have arrived.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// The number of bodies of a connection that are arriving. A clone is another handle on the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Arriving(Arc<AtomicUsize>);

impl Arriving {
    /// Watches the body of a request.
    pub(super) fn watch(&self, body: Incoming) -> ArrivingBody {
        let is_arriving = !body.is_end_stream();
        self.0.fetch_add(usize::from(is_arriving), Ordering::Relaxed);
        ArrivingBody { body, arriving: self.clone(), is_arriving }
    }

    /// True if a part of a body is missing that its request still needs.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct ArrivingBody {
    body: Incoming,
    arriving: Arriving,
    is_arriving: bool,
}

impl ArrivingBody {
    fn end(&mut self) {
        if std::mem::take(&mut self.is_arriving) {
            self.arriving.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Body for ArrivingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            self.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        // The request was refused: only its answer is to be sent.
        self.end();
    }
}
