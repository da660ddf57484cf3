//! Requests of OTLP, in the binary form and in JSON. An input is a signal, a form, and a request.

use std::collections::BTreeMap;

use arrow_array::{Array, BinaryViewArray};
use arrow_buffer::Buffer;
use thalweg_codec::otlp::{Decoded, Decoder, Encoder, Records, Signal, request, request_of_json};
use thalweg_engine::testing::batch;
use thalweg_record::{Batch, Budget};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "otlp",
    components: &["otlp"],
    longest: 16 << 10,
    words: &[
        "\u{a}\u{2}\u{12}\u{0}",
        "\u{12}\u{4}\u{12}\u{2}*\u{0}",
        "2\u{8}\u{a}\u{1}a\u{12}\u{3}\u{a}\u{1}b",
        "*\u{4}*\u{2}\u{a}\u{0}",
        "J\u{10}aaaaaaaaaaaaaaaa",
        "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{\"body\":{\"stringValue\":\"a\"}}]}]}]}",
        "\"attributes\":[{\"key\":\"a\",\"value\":{\"arrayValue\":{\"values\":[{\"intValue\":\"1\"}]}}}]",
        "\"bucketCounts\":[\"1\",2]",
        "\"kvlistValue\":{\"values\":[]}",
    ],
    run,
};

/// The memory of a run.
const MEMORY: usize = 4 << 20;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let signal = Signal::ALL[input.choice(Signal::ALL.len())];
    let is_json = input.choice(2) == 1;
    let most = (16 << 20) + 600 * bytes.len();
    bounded(most, || match is_json {
        true => {
            if let Ok(request) = request_of_json(signal, input.0) {
                assert!(request.len() <= 4 * input.0.len(), "a request grew");
                check(signal, &request);
            }
        }
        false => check(signal, input.0),
    });
}

fn decoder(signal: Signal, request: &[u8]) -> Decoder {
    Decoder::new(signal, Buffer::from_vec(request.to_vec()), &Budget::new(MEMORY)).expect("a small request")
}

fn as_batch(Records { payload, fields }: Records) -> Batch {
    let empty = batch(vec![""; payload.len()]);
    let batch = empty.with_payload(payload).and_then(|batch| batch.with_fields(fields));
    batch.expect("a payload for each row")
}

/// Reads a request, and checks that its records return. It has as many with smaller batches, which a source
/// sends after it has checked the request with larger ones.
fn check(signal: Signal, request: &[u8]) {
    let whole = count(decoder(signal, request), |part| {
        if let Some((records, reasons)) = &part.rejected {
            assert_eq!(records.payload.len(), reasons.len());
        }
        returns(signal, &as_batch(part.records));
    });
    let again = count(decoder(signal, request).of_rows(Some(100)), |_| ());
    assert_eq!(whole, again);
}

/// Returns the number of records of a request.
fn count(mut decoder: Decoder, mut see: impl FnMut(Decoded)) -> Result<usize, String> {
    let mut count = 0;
    while let Some(part) = decoder.part()? {
        count += part.records.payload.len() + part.rejected.as_ref().map_or(0, |(_, reasons)| reasons.len());
        see(part);
    }
    Ok(count)
}

/// Checks that records are the same after they were sent and received.
fn returns(signal: Signal, batch: &Batch) {
    let encoder = Encoder::new(signal, &BTreeMap::new(), Vec::new());
    let mut bound = encoder.bind(batch);
    let mut parts = Vec::new();
    for row in 0..batch.rows() {
        let mut part = Vec::new();
        bound.write(signal, row, &mut part).expect("what was received can be sent");
        parts.push(part);
    }
    let sent = request(parts.iter().map(Vec::as_slice));
    let mut decoder = decoder(signal, &sent);
    let mut again: Vec<BinaryViewArray> = Vec::new();
    while let Some(part) = decoder.part().expect("what was sent can be received") {
        assert!(part.rejected.is_none(), "{:?}", part.rejected);
        again.push(part.records.payload);
    }
    // Records of one group come together, so their order can change.
    let mut sent: Vec<&[u8]> = batch.payload().iter().flatten().collect();
    let mut received: Vec<&[u8]> = again.iter().flat_map(|payload| payload.iter().flatten()).collect();
    sent.sort_unstable();
    received.sort_unstable();
    assert_eq!(sent, received);
}
