mod charsets;
mod joins;
mod stream;

use super::*;
use proptest::prelude::*;

fn framing(delimiter: &[u8], pattern: Option<&str>) -> Framing {
    Framing {
        delimiter: Delimiter(delimiter.to_vec()),
        start_pattern: pattern.map(|pattern| pattern.parse().unwrap()),
        timeout: None,
        join: None,
    }
}

/// A message: its offset, its bytes, and whether it was too long.
type Cut = (u64, Vec<u8>, bool);

/// Cuts as a source does, with input in pieces of these lengths.
fn cut(framing: &Framing, limit: usize, input: &[u8], chunks: &[usize]) -> Vec<Cut> {
    let mut cutter = Cutter::new(framing, ByteSize(limit as u64), StreamPosition::default());
    let (mut buffer, mut cuts, mut rest) = (Vec::new(), Vec::new(), input);
    let mut chunks = chunks.iter().cycle();
    loop {
        let (chunk, after) = rest.split_at((*chunks.next().unwrap()).min(rest.len()));
        rest = after;
        buffer.extend_from_slice(chunk);
        let after = if rest.is_empty() { After::End } else { After::More };
        while let Some(piece) = cutter.next(&buffer, after) {
            let position = cutter.offset + piece.range.start as u64;
            cuts.push((position, buffer[piece.range].to_vec(), piece.too_long));
        }
        let done = cutter.advance();
        buffer.drain(..done);
        let delimiter = framing.delimiter.0.len();
        assert!(buffer.len() <= 2 * limit + 2 * delimiter + 2, "{} bytes are held", buffer.len());
        if rest.is_empty() {
            assert!(buffer.is_empty());
            return cuts;
        }
    }
}

/// The expected result: all input at once, and no optimisation.
fn model(framing: &Framing, limit: usize, input: &[u8]) -> Vec<Cut> {
    let delimiter = &framing.delimiter.0;
    let trim = |line: &[u8]| match line.split_last() {
        Some((b'\r', line)) if delimiter == b"\n" => line.len(),
        _ => line.len(),
    };
    // Each line as its start, the end of its text, and its end with the delimiter.
    let mut lines = Vec::new();
    let mut start = 0;
    while start < input.len() {
        let rest = &input[start..];
        let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
        let (text, whole) = match found {
            Some(end) => (trim(&rest[..end]), end + delimiter.len()),
            None => (rest.len(), rest.len()),
        };
        lines.push((start, start + text, start + whole));
        start += whole;
    }
    let mut messages: Vec<(usize, usize)> = Vec::new();
    for (start, end, _) in lines {
        let begins = match &framing.start_pattern {
            Some(pattern) => pattern.is_match(&input[start..end.min(start + limit)]),
            None => true,
        };
        match messages.last_mut() {
            Some(message) if !begins => message.1 = end,
            _ => messages.push((start, end)),
        }
    }
    let cut = |(start, end): (usize, usize)| {
        let too_long = end - start > limit;
        let end = if too_long { start + limit.min(KEPT) } else { end };
        (start as u64, input[start..end].to_vec(), too_long)
    };
    messages.into_iter().map(cut).collect()
}

/// Few letters, so that delimiters and their parts are frequent.
fn letters() -> impl Strategy<Value = u8> {
    prop_oneof![4 => prop::sample::select(b"ab\n\r\0-".to_vec()), 1 => any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_messages_are_those_of_the_model_however_the_input_comes(
        delimiter in prop_oneof![
            3 => Just(b"\n".to_vec()),
            1 => Just(b"\0".to_vec()),
            3 => prop::collection::vec(prop::sample::select(b"ab\r\n".to_vec()), 1..4),
        ],
        pattern in prop::option::of(prop::sample::select(vec!["^a", "b$", "a", "^$", "-"])),
        input in prop::collection::vec(letters(), 0..80),
        chunks in prop_oneof![
            Just(vec![1]),
            Just(vec![usize::MAX]),
            prop::collection::vec(1..20usize, 1..6),
        ],
        limit in prop_oneof![3 => 1..12usize, 1 => Just(1000)],
    ) {
        let framing = framing(&delimiter, pattern);
        prop_assert_eq!(cut(&framing, limit, &input, &chunks), model(&framing, limit, &input));
    }

    #[test]
    fn going_on_from_any_place_gives_the_messages_that_were_left(
        pattern in prop::option::of(prop::sample::select(vec!["^a", "-"])),
        input in prop::collection::vec(letters(), 0..80),
        limit in 1..12usize,
        stop in 0..30usize,
        chunk in 1..10usize,
    ) {
        let framing = framing(b"\n", pattern);
        let whole = model(&framing, limit, &input);
        // Reads the input in small pieces until `stop` messages were returned.
        let mut cutter = Cutter::new(&framing, ByteSize(limit as u64), StreamPosition::default());
        let (mut given, mut read) = (0, 0);
        let position = loop {
            let from = usize::try_from(cutter.offset).unwrap();
            read = (read + chunk).min(input.len());
            let after = if read == input.len() { After::End } else { After::More };
            while given < stop && cutter.next(&input[from..read], after).is_some() {
                given += 1;
            }
            let position = cutter.position();
            cutter.advance();
            if given == stop || read == input.len() {
                break position;
            }
        };
        let mut cutter = Cutter::new(&framing, ByteSize(limit as u64), position);
        let rest = &input[usize::try_from(position.offset).unwrap()..];
        let mut left = Vec::new();
        while let Some(piece) = cutter.next(rest, After::End) {
            left.push(cutter.offset + piece.range.start as u64);
        }
        let expected: Vec<u64> = whole.iter().skip(given).map(|cut| cut.0).collect();
        prop_assert_eq!(left, expected);
    }

    #[test]
    fn a_delimiter_is_written_as_it_is_read(bytes in prop::collection::vec(any::<u8>(), 1..8)) {
        let delimiter = Delimiter(bytes);
        prop_assert_eq!(Delimiter::try_from(String::from(delimiter.clone())), Ok(delimiter));
    }
}

fn texts(cuts: &[Cut]) -> Vec<&str> {
    cuts.iter().map(|cut| std::str::from_utf8(&cut.1).unwrap()).collect()
}

#[test]
fn a_carriage_return_is_removed_before_a_line_feed_and_nowhere_else() {
    let lines = framing(b"\n", None);
    for chunk in [1, 3, 100] {
        let cuts = cut(&lines, 100, b"a\r\nb\rc\n\r\nd\r\r\ne\r", &[chunk]);
        assert_eq!(texts(&cuts), ["a", "b\rc", "", "d\r", "e\r"]);
    }
    assert_eq!(texts(&cut(&framing(b"\0", None), 100, b"a\r\0b\n", &[1])), ["a\r", "b\n"]);
}

#[test]
fn lines_without_the_start_pattern_belong_to_the_message_before() {
    let trace = framing(b"\n", Some(r"^\d"));
    let input = b"  left over\n1 panic\n  at a\r\n  at b\r\n2 fine\n3 last";
    for chunk in [1, 2, 7, 100] {
        let cuts = cut(&trace, 100, input, &[chunk]);
        assert_eq!(texts(&cuts), ["  left over", "1 panic\n  at a\r\n  at b", "2 fine", "3 last"]);
    }
}

#[test]
fn lines_are_not_kept_back_when_nothing_came_for_a_while() {
    let mut cutter = Cutter::new(&framing(b"\n", Some("^a")), DEFAULT_LIMIT, StreamPosition::default());
    let input = b"a1\n b\npart";
    assert_eq!(cutter.next(input, After::More), None);
    assert_eq!(cutter.next(input, After::Quiet), Some(Piece { range: 0..5, too_long: false }));
    assert_eq!(cutter.next(input, After::Quiet), None);
    assert_eq!(cutter.position().offset, 6);
}

#[test]
fn a_wrong_delimiter_is_explained() {
    let refused = |text: &str| Delimiter::try_from(text.to_owned()).unwrap_err();
    assert_eq!(refused(""), "A delimiter cannot be empty: write `\\n`, `\\0` or some other text.");
    assert_eq!(
        refused("\\"),
        "`\\` is not known here: write `\\n`, `\\r`, `\\t`, `\\0`, `\\xHH`, or `\\\\` for a backslash."
    );
    assert_eq!(
        refused("\\q"),
        "`\\q` is not known here: write `\\n`, `\\r`, `\\t`, `\\0`, `\\xHH`, or `\\\\` for a backslash."
    );
    assert_eq!(refused("\\x1"), "`\\x1` is not a byte: write two digits, as in `\\x1e`.");
    assert_eq!(refused("\\x+f"), "`\\x+f` is not a byte: write two digits, as in `\\x1e`.");
    assert_eq!(Delimiter::try_from("\\r\\n\\x1e|".to_owned()), Ok(Delimiter(b"\r\n\x1e|".to_vec())));
}

#[test]
fn a_message_of_more_than_half_of_the_memory_is_too_long() {
    let mut cutter = Cutter::new(&framing(b"\n", None), ByteSize::mib(1), StreamPosition::default());
    cutter.within(4 << 20);
    cutter.within(160 << 10);
    let line = arrow_buffer::Buffer::from(vec![b'x'; 100 << 10].as_slice());
    let found = cutter.next_batch(&line, After::More).too_long.unwrap();
    assert_eq!(
        found.reason,
        "is longer than half of `memory` (80KiB): it begins at byte 0, and only its first 4096 bytes are kept"
    );
    // With a tiny budget, messages of the usual size pass.
    let mut cutter = Cutter::new(&framing(b"\n", None), ByteSize::mib(1), StreamPosition::default());
    cutter.within(1);
    let line = arrow_buffer::Buffer::from(b"a usual line\n".as_slice());
    assert_eq!(cutter.next_batch(&line, After::More).positions.len(), 1);
}
