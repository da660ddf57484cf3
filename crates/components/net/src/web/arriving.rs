//! The body of a request, and whether it is still arriving.
//!
//! A connection that lost its place finishes its request first. It must not wait for a client that sends a
//! byte of its body now and then, so it asks here whether the body has arrived.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Whether the body of a connection's present request is arriving. A clone is another handle on the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Arriving(Arc<AtomicBool>);

impl Arriving {
    /// Watches the body of the connection's next request.
    pub(super) fn watch(&self, body: Incoming) -> ArrivingBody {
        self.0.store(!body.is_end_stream(), Ordering::Relaxed);
        ArrivingBody { body, arriving: self.clone() }
    }

    /// True if a part of the body is missing that the request still needs.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The body of a request.
#[derive(Debug)]
pub struct ArrivingBody {
    body: Incoming,
    arriving: Arriving,
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
            self.arriving.end();
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
        self.arriving.end();
    }
}
