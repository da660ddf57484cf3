//! Streams of server-sent events. The model reads the whole text line by line. Pieces do not matter, and what
//! is too long is not kept.

use std::sync::Arc;

use thalweg_net::sources::sse::event_stream::{EventStream, LONGEST_NAME};

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "event_stream",
    components: &["sse"],
    longest: 64 << 10,
    words: &[
        "data: ",
        "data",
        "event: ",
        "id: ",
        "id",
        "retry: 100",
        ":",
        "\n\n",
        "\r\n",
        "\r",
        "\u{feff}",
        "\0",
    ],
    run,
};

/// The limits of an event.
const LIMITS: [usize; 4] = [1, 8, 4097, 1 << 20];

/// An event: its data, its name, its id and its size.
type Found = (Vec<u8>, String, Arc<str>, usize);

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let limit = LIMITS.get(input.choice(LIMITS.len())).copied().unwrap_or(1);
    let seed = input.choice(256);
    let most = (1 << 20) + 200 * bytes.len();
    let whole = bounded(most, || read([input.0], limit));
    let cut = bounded(most, || read(pieces(input.0, seed), limit));
    assert_eq!(whole, cut, "pieces matter");
    assert!(whole.iter().all(|(data, .., size)| data.len() <= *size), "there is more than came");
    let expected = model(input.0);
    assert_eq!(whole.len(), expected.len(), "the number of events");
    for ((data, name, id, size), (whole, expected_name, expected_id, _)) in whole.iter().zip(&expected) {
        assert_eq!((*size, name, id), (whole.len(), expected_name, expected_id));
        assert!(whole.starts_with(data) && (whole.len() > limit || data == whole));
    }
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Vec<Found> {
    let (mut stream, mut found) = (EventStream::new(limit, ""), Vec::new());
    for piece in pieces {
        stream.push(piece, |event| {
            found.push((event.data.to_vec(), event.name.to_owned(), event.id.clone(), event.size));
        });
        assert!(stream.held() <= 4 * (limit.max(LONGEST_NAME) + (8 << 10)), "it holds too much");
    }
    found
}

fn model(bytes: &[u8]) -> Vec<Found> {
    let (mut found, mut data, mut name) = (Vec::new(), None::<Vec<u8>>, String::new());
    let mut id: Arc<str> = Arc::default();
    for line in lines(bytes) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let is_short = value.len() <= LONGEST_NAME;
        match field {
            b"" if line.is_empty() => {
                if let Some(data) = data.take() {
                    let shown = if name.is_empty() { "message" } else { &name };
                    let size = data.len();
                    found.push((data, shown.to_owned(), id.clone(), size));
                }
                name.clear();
            }
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            b"event" if is_short => name = String::from_utf8_lossy(value).into_owned(),
            b"id" if is_short && !value.iter().any(u8::is_ascii_control) => {
                id = String::from_utf8_lossy(value).into();
            }
            _ => {}
        }
    }
    found
}

/// Returns the lines that have ended.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut lines = Vec::new();
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let (line, after) = rest.split_at(end);
        lines.push(line);
        rest = after.strip_prefix(b"\r\n").unwrap_or(after.get(1..).unwrap_or_default());
    }
    lines
}
