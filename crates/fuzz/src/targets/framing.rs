//! Messages in a stream, cut in pieces: by delimiters, by lengths, by start patterns, and those of syslog.
//! Text in all character sets and joined lines also resume at any position.

use std::sync::LazyLock;

use arrow_buffer::Buffer;
use thalweg_codec::framing::{After, CutOptions, StreamPosition};
use thalweg_codec::stream_framing::{StreamCutter, StreamFraming};
use thalweg_codec::testing;
use thalweg_config::ByteSize;
use thalweg_config::testing::options;

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "framing",
    components: &["socket", "proxy", "file", "stdin", "pipe", "exec", "lines"],
    longest: 16 << 10,
    words: &[
        "\r\n",
        "--",
        "12 ",
        "3:",
        "\0\0\0\u{3}",
        "2024-",
        "t stdout P ",
        "t stderr F ",
        "\0\n",
        "\u{feff}",
    ],
    run,
};

static FRAMINGS: LazyLock<Vec<StreamFraming>> = LazyLock::new(|| {
    let all = [
        "{}",
        "{ delimiter: '--' }",
        "{ start_pattern: '^\\d' }",
        "{ by: ascii, delimiter: ':' }",
        "{ by: ascii, offset: 2, delimiter: ' ', whole: true }",
        "{ by: binary_be }",
        "{ by: binary_le, size: 2, offset: 1 }",
        "{ by: binary_be, size: 8, whole: true }",
        "{ by: fixed, size: 5 }",
        "{ by: gelf }",
        "{ by: journal }",
        "{ delimiter: \"\\n\", whole: true }",
        "{ by: varint }",
        "{ by: varint, offset: 2, whole: true }",
    ];
    all.map(options).into()
});

/// The limit of a message.
const LIMIT: usize = 100;

/// The cutters that are no [`StreamFraming`].
const OTHERS: usize = 2;

/// Text that is decoded or joined.
static TEXTS: LazyLock<Vec<CutOptions>> = LazyLock::new(|| {
    let all = [
        "{ max_message_bytes: 100B }",
        "{ max_message_bytes: 100B, charset: latin1, framing: { start_pattern: '^\\d' } }",
        "{ max_message_bytes: 100B, charset: utf-16 }",
        "{ max_message_bytes: 100B, charset: shift_jis, framing: { delimiter: '|' } }",
        "{ max_message_bytes: 100B, charset: gb18030, framing: { delimiter: '0' } }",
        "{ max_message_bytes: 100B, framing: { join: cri } }",
    ];
    all.map(options).into()
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(FRAMINGS.len() + OTHERS + TEXTS.len());
    let seed = input.choice(256);
    if let Some(text) = choice.checked_sub(FRAMINGS.len() + OTHERS).and_then(|text| TEXTS.get(text)) {
        return run_text(text, input.0, seed);
    }
    let whole = bounded((1 << 20) + 100 * bytes.len(), || cut(choice, &[input.0]));
    assert_eq!(cut(choice, &pieces(input.0, seed)), whole, "the messages of a stream in pieces");
}

/// The pieces give the same as the whole, and so does what is left from any position on.
fn run_text(text: &CutOptions, bytes: &[u8], seed: usize) {
    let start = StreamPosition::default();
    let (whole, _) = bounded((1 << 20) + 200 * bytes.len(), || batches(text, start, &[bytes]));
    let (found, places) = batches(text, start, &pieces(bytes, seed));
    assert_eq!(found, whole, "the messages of a text in pieces");
    // All would take quadratic time.
    for (before, place) in places.iter().step_by(places.len() / 8 + 1) {
        let rest = usize::try_from(place.offset).ok().and_then(|offset| bytes.get(offset..));
        let (left, _) = batches(text, *place, &[rest.unwrap_or_default()]);
        assert_eq!(left, found.get(*before..).unwrap_or_default(), "the messages after {place:?}");
    }
}

/// A message, or the first bytes of one that is rejected.
type Found = (u64, Vec<u8>, bool);

/// Returns the messages of a text that arrives in pieces, and positions with the number of messages before
/// each.
fn batches(
    text: &CutOptions,
    from: StreamPosition,
    pieces: &[&[u8]],
) -> (Vec<Found>, Vec<(usize, StreamPosition)>) {
    let mut cutter = text.cutter(from);
    let (mut buffer, mut found, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..pieces.len().max(1) {
        buffer.extend_from_slice(pieces.get(number).copied().unwrap_or_default());
        let after = if number + 1 >= pieces.len() { After::End } else { After::More };
        let bytes = Buffer::from(buffer.as_slice());
        loop {
            let batch = cutter.next_batch(&bytes, after);
            for row in 0..batch.positions.len() {
                places.push((found.len(), batch.before(row)));
                found.push((batch.positions.value(row), batch.payload.value(row).to_vec(), false));
            }
            let is_last = batch.is_last;
            found.extend(batch.too_long.map(|rejected| (rejected.position, rejected.bytes, true)));
            if is_last {
                break;
            }
        }
        buffer.drain(..cutter.advance());
        places.push((found.len(), cutter.position()));
    }
    (found, places)
}

fn begin(choice: usize) -> StreamCutter {
    let limit = ByteSize(LIMIT as u64);
    match FRAMINGS.get(choice) {
        Some(framing) => framing.begin(limit, false),
        None if choice == FRAMINGS.len() => StreamCutter::of_syslog(limit),
        None => StreamCutter::of_octets(limit),
    }
}

/// Returns the messages of a stream that arrives in pieces, each with whether it was too long, and whether
/// the stream became unusable.
fn cut(choice: usize, pieces: &[&[u8]]) -> (Vec<(Vec<u8>, bool)>, bool) {
    let (found, wrong) = testing::cut(begin(choice), LIMIT, pieces.iter().copied());
    for (message, _) in &found {
        assert!(message.len() <= LIMIT + 8 + 20, "a message of {} bytes", message.len());
    }
    (found, wrong.is_some())
}
