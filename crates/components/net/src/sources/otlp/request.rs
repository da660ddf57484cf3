//! Takes one request: reads its body and sends its records.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::Array;
use arrow_buffer::Buffer;
use hyper::StatusCode;
use thalweg_codec::otlp::answer::{Code, Form};
use thalweg_codec::otlp::{Decoded, Decoder, Records, Signal, request_of_json};
use thalweg_engine::{Error, Reading, Received, SourceOutput};

use super::Server;
use crate::net::Sent;
use crate::web::{Accepted, ArrivingBody, Bodies, Gate, Refusal, Wrapping};

/// When a sender that was refused for now may send its request again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The most bytes of a request in its binary form for each byte in JSON.
const OF_JSON: usize = 4;

/// The signal of a request, and its forms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) signal: Signal,
    pub(super) form: Form,
    pub(super) wrapping: Wrapping,
}

/// Returns the status in gRPC of a request that is refused, and when it may be sent again.
pub(super) fn status_of(refusal: &Refusal) -> (Code, Option<Duration>) {
    match refusal.status {
        StatusCode::BAD_REQUEST => (Code::InvalidArgument, None),
        StatusCode::UNAUTHORIZED => (Code::Unauthenticated, None),
        StatusCode::REQUEST_TIMEOUT => (Code::DeadlineExceeded, None),
        StatusCode::PAYLOAD_TOO_LARGE => (Code::ResourceExhausted, None),
        StatusCode::TOO_MANY_REQUESTS => (Code::ResourceExhausted, Some(RETRY_AFTER)),
        StatusCode::SERVICE_UNAVAILABLE => (Code::Unavailable, Some(RETRY_AFTER)),
        _ => (Code::Unimplemented, None),
    }
}

/// Returns the text for the sender of records that were rejected.
pub(super) fn rejected(accepted: &Accepted) -> String {
    match accepted.rejected {
        0 => String::new(),
        rejected => format!(
            "{rejected} of {} records were rejected; the server keeps them with their reasons",
            accepted.messages
        ),
    }
}

impl Server {
    /// Takes a request.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    pub(super) async fn take(
        &self,
        kind: Kind,
        body: ArrivingBody,
        gate: &Gate,
        peer: &Arc<str>,
    ) -> Result<Accepted, Refusal> {
        let stopping = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        if !self.config.takes(kind.signal) {
            let reason = format!("this server takes no {}", kind.signal.name());
            return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
        }
        let Some(out) = gate.output() else { return Err(stopping()) };
        self.send(kind, body, peer, out).await.unwrap_or_else(|error| {
            gate.fail(error);
            Err(stopping())
        })
    }

    async fn send(
        &self,
        kind: Kind,
        body: ArrivingBody,
        peer: &Arc<str>,
        mut out: SourceOutput,
    ) -> Result<Result<Accepted, Refusal>, Error> {
        let bodies = Bodies {
            most: self.config.max_body_bytes,
            read_timeout: self.config.read_timeout.duration(),
            memory_timeout: Some(self.config.memory_timeout.duration()),
        };
        let (memory, lease) = match bodies.read(body, kind.wrapping, &out).await {
            Ok(read) => read,
            Err(refused) => return Ok(Err(refused)),
        };
        let request = match kind.form {
            Form::Binary => Ok(lease.freeze(memory)),
            Form::Json => {
                let claimed = out.claim(memory.len().saturating_mul(OF_JSON));
                let request = request_of_json(kind.signal, &memory);
                drop((memory, lease, claimed));
                request.map(|request| out.claim(request.capacity()).freeze(request))
            }
        };
        let decoder = match request {
            Ok(request) => begun(kind.signal, request, &out).await,
            Err(reason) => Err(reason),
        };
        let (mut decoder, mut part) = match decoder {
            Ok(decoder) => decoder,
            Err(reason) => return Ok(Err(malformed(&reason))),
        };
        let mut batches = Vec::new();
        while let Some(decoded) = part {
            let messages = decoded.records.payload.len();
            if messages > 0 {
                let settled = Some(out.send_acked(received(decoded.records, peer)).await?);
                batches.push(Sent { messages, rejected: 0, settled });
            }
            if let Some((records, reasons)) = decoded.rejected {
                let rejected = reasons.len();
                let settled = Some(out.reject_acked(received(records, peer), reasons).await?);
                batches.push(Sent { messages: rejected, rejected, settled });
            }
            let working = out.claim(decoder.working_memory());
            let next = decoder.part();
            drop(working);
            part = match next {
                Ok(part) => part,
                // The request was checked, so this does not happen.
                Err(reason) => return Ok(Err(malformed(&reason))),
            };
        }
        drop(decoder);
        // Downstream stages end only when all source outputs are dropped. Some settle their batches only
        // then.
        drop(out);
        Ok(Accepted::of(batches).await)
    }
}

/// Begins to read a request. Returns its first records too.
///
/// # Errors
/// The reason why the request is not valid. Nothing of it may then be sent, so it is read to its end here if
/// it has more records.
async fn begun(
    signal: Signal,
    request: Buffer,
    out: &SourceOutput,
) -> Result<(Decoder, Option<Decoded>), String> {
    let budget = out.share().budget();
    let mut decoder = Decoder::new(signal, request.clone(), budget)?.of_rows(out.batch_rows());
    let _working = out.claim(decoder.working_memory());
    let first = decoder.part()?;
    if !decoder.is_done() {
        let mut check = Decoder::new(signal, request, budget)?;
        while check.part()?.is_some() {
            // A large request takes a while.
            tokio::task::yield_now().await;
        }
    }
    Ok((decoder, first))
}

fn malformed(reason: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("the request {reason}"))
}

fn received(records: Records, peer: &Arc<str>) -> Received {
    let Records { payload, fields } = records;
    let reading = Reading { payload, path: Some(peer.clone()), positions: None, checkpoint: None };
    Received { reading, fields: Some(fields) }
}
