//! The heads of answers to ranged reads, and what follows from them. A server may say anything; no byte may
//! arrive at another position than the one that it has, and none beyond the range.

use std::ops::Range;
use std::time::Duration;

use thalweg_store::{AttemptError, Fingerprint, Receiver, receive, state};
use tokio::runtime::{Builder, Runtime};

use super::store_answers::{Service, origin};
use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "content_range",
    components: &["remote_files"],
    longest: 4 << 10,
    words: &[
        "content-range: bytes 0-9/100\n",
        "content-length: 10\n",
        "retry-after: 1\n",
        "etag: \"a\"\n",
        "last-modified: Wed, 21 Oct 2015 07:28:00 GMT\n",
        "bytes */5",
        "18446744073709551615",
    ],
    run,
};

/// The range that is asked for, and the length that is expected.
const RANGE: Range<u64> = 10..20;
const LENGTH: u64 = 100;

thread_local! {
    pub(super) static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

#[derive(Default)]
struct Taken(u64);

impl Receiver for Taken {
    fn head(&mut self, _: Option<Fingerprint>) -> Result<(), AttemptError> {
        Ok(())
    }

    fn bytes(&mut self, at: u64, bytes: bytes::Bytes) -> Result<(), AttemptError> {
        assert_eq!(at, self.0, "the position of the bytes");
        self.0 += bytes.len() as u64;
        assert!(self.0 <= RANGE.end - RANGE.start, "more bytes than the range has");
        Ok(())
    }

    fn confirmed(&mut self, _: Fingerprint) -> Result<(), AttemptError> {
        Ok(())
    }
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let service = Service::ALL[input.choice(Service::ALL.len())];
    let origin = origin(service, input.0);
    let silence = Duration::from_secs(60);
    bounded((8 << 20) + 100 * bytes.len(), || {
        RUNTIME.with(|runtime| {
            runtime.block_on(async {
                let mut taken = Taken::default();
                let received = receive(&origin, RANGE, LENGTH, silence, &<_>::default(), &mut taken).await;
                assert!(
                    received.is_err() || taken.0 == RANGE.end - RANGE.start,
                    "a short answer was accepted"
                );
                for by_reading in [false, true] {
                    let _ = state(&origin, by_reading, silence, &<_>::default()).await;
                }
            });
        });
    });
}
