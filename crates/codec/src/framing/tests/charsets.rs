//! Streams in other character sets than UTF-8.

use super::stream::{check_places, options, read};
use super::*;
use crate::charset::Charset;

/// Encodes the characters of a text that the character set has. Returns also the text of these.
fn encoded(charset: &str, text: &str) -> (Vec<u8>, String) {
    match charset {
        "utf-8" => return (text.as_bytes().to_vec(), text.to_owned()),
        "utf-16" | "utf-16le" => {
            return (text.encode_utf16().flat_map(u16::to_le_bytes).collect(), text.to_owned());
        }
        "utf-16be" => return (text.encode_utf16().flat_map(u16::to_be_bytes).collect(), text.to_owned()),
        _ => {}
    }
    let charset = Charset::try_from(charset.to_owned()).unwrap();
    let (mut bytes, mut kept) = (Vec::new(), String::new());
    for character in text.chars() {
        let one = charset.encoded(character.encode_utf8(&mut [0; 4]).as_bytes());
        let mut decoded = Vec::new();
        if charset.decode_onto(&one, &mut decoded).is_ok()
            && decoded == character.encode_utf8(&mut [0; 4]).as_bytes()
        {
            bytes.extend(one);
            kept.push(character);
        }
    }
    (bytes, kept)
}

/// The expected result: the whole text is decoded and then cut.
fn model<'t>(text: &'t str, delimiter: &str) -> Vec<&'t str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut messages: Vec<&str> = text.split(delimiter).collect();
    messages.pop_if(|last| last.is_empty());
    let ends = text.ends_with(delimiter);
    let count = messages.len();
    let trimmed = |(number, message): (usize, &'t str)| {
        let has_end = number + 1 < count || ends;
        let without = message.strip_suffix('\r').filter(|_| delimiter == "\n" && has_end);
        without.unwrap_or(message)
    };
    messages.into_iter().enumerate().map(trimmed).collect()
}

const CHARSETS: [&str; 12] = [
    "utf-8",
    "utf-16",
    "utf-16le",
    "utf-16be",
    "latin1",
    "windows-1252",
    "shift_jis",
    "gbk",
    "gb18030",
    "big5",
    "euc-jp",
    "euc-kr",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_text_in_any_character_set_is_cut_as_if_it_were_decoded_first(
        text in "\u{feff}?[ab0|\\\\~\r\n\u{e9}\u{20ac}\u{8868}\u{30bd}\u{80fd}\u{ac00}\u{10400}\u{a0a}\u{d0a}]{0,40}",
        kind in 0..CHARSETS.len(),
        delimiter in prop::sample::select(vec!["\n", "|", "\\", "ab", "\u{8868}", "\u{e9}|", "\n\n", "0"]),
        chunk in prop_oneof![1..7usize, Just(1 << 20)],
    ) {
        let charset = CHARSETS[kind];
        let (input, text) = encoded(charset, &text);
        let (_, kept) = encoded(charset, delimiter);
        prop_assume!(kept == delimiter);
        let options = options(framing(delimiter.as_bytes(), None), charset, 1 << 20);
        let stream = read(&options, StreamPosition::default(), &input, chunk);
        let found: Vec<&str> = stream.messages().into_iter().map(|message| message.1).collect();
        let has_mark = matches!(charset, "utf-8" | "utf-16" | "utf-16le" | "utf-16be");
        // Elsewhere a byte order mark is a character like any other.
        let expected = match text.strip_prefix('\u{feff}').filter(|_| !has_mark) {
            Some(_) => return Ok(()),
            None => model(&text, delimiter),
        };
        prop_assert_eq!(found, expected);
        check_places(&options, &input, &stream, chunk);
    }

    #[test]
    fn any_bytes_in_any_pieces_give_the_same(
        input in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\n|\\0\x00\x81\xd8\xff\xfe".to_vec())], 0..60),
        kind in 0..CHARSETS.len(),
        delimiter in prop::sample::select(vec!["\n", "|", "0"]),
        limit in prop_oneof![1..12u64, Just(1000)],
        chunk in 1..9usize,
    ) {
        let options = options(framing(delimiter.as_bytes(), None), CHARSETS[kind], limit);
        let whole = read(&options, StreamPosition::default(), &input, 1 << 20);
        let pieces = read(&options, StreamPosition::default(), &input, chunk);
        prop_assert_eq!(&pieces.events, &whole.events);
        check_places(&options, &input, &pieces, chunk);
    }
}

#[test]
fn a_line_feed_of_utf_16_is_found_between_two_characters_only() {
    // The bytes of the first and the second letter contain those of a line feed, at an odd position.
    let text = "\u{feff}\u{0a41}\u{0100}\u{0a00}\r\nzwei €\n\ndrei";
    let expected: [(u64, &str); 4] =
        [(2, "\u{0a41}\u{0100}\u{0a00}"), (12, "zwei €"), (26, ""), (28, "drei")];
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (charset, bytes) in [("utf-16le", &little), ("utf-16be", &big), ("utf-16", &little), ("utf-16", &big)]
    {
        let options = options(framing(b"\n", None), charset, 1 << 20);
        for chunk in [1, 2, 3, 5, 100] {
            let stream = read(&options, StreamPosition::default(), bytes, chunk);
            assert_eq!(stream.messages(), expected, "{charset} in pieces of {chunk}");
            check_places(&options, bytes, &stream, chunk);
        }
    }
}

#[test]
fn a_delimiter_within_a_character_is_none() {
    // The second byte of the first character is that of a backslash, and that of the third one of a bar.
    let options = options(framing(b"|", None), "shift_jis", 100);
    for chunk in 1..8 {
        let stream = read(&options, StreamPosition::default(), b"\x95\x5c\x83\x5c\x83\x7c|a|", chunk);
        assert_eq!(stream.messages(), [(0, "表ソポ"), (7, "a")]);
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_message_and_of_no_other() {
    let options = options(framing(b"\n", Some("^a")), "utf-8", 100);
    for chunk in [1, 2, 3, 4, 100] {
        let stream = read(&options, StreamPosition::default(), "\u{feff}a\n\u{feff}b\na".as_bytes(), chunk);
        assert_eq!(stream.messages(), [(3, "a\n\u{feff}b"), (10, "a")]);
    }
    for text in ["\u{feff}", ""] {
        assert!(read(&options, StreamPosition::default(), text.as_bytes(), 1).events.is_empty());
    }
    // A cutter of bytes, as for a proxy, keeps it.
    let mut cutter = Cutter::new(&framing(b"\n", None), DEFAULT_LIMIT, StreamPosition::default());
    assert_eq!(cutter.next(b"\xef\xbb\xbfa\n", After::More).unwrap().range, 0..4);
}

#[test]
fn lines_of_other_character_sets_are_decoded_before_a_pattern_sees_them() {
    let latin = |delimiter: &[u8], pattern| options(framing(delimiter, pattern), "latin1", 100);
    let read = |options: &CutOptions, input: &[u8]| {
        let stream = read(options, StreamPosition::default(), input, 3);
        stream.messages().into_iter().map(|(at, text)| (at, text.to_owned())).collect::<Vec<_>>()
    };
    let found = read(&latin(b"\n", Some("^é")), b"\xe9 1\n + \xfc\n\xe9 2\nrest");
    assert_eq!(found, [(0, "é 1\n + ü".to_owned()), (9, "é 2\nrest".to_owned())]);
    let found = read(&latin("§".as_bytes(), None), b"a\xa7b");
    assert_eq!(found, [(0, "a".to_owned()), (2, "b".to_owned())]);
}

#[test]
fn an_invalid_message_is_rejected_and_the_next_is_read() {
    let bytes = b"a\0\n\0\x00\xd8b\0\n\0c\0\n\0";
    let options = options(framing(b"\n", None), "utf-16le", 100);
    let stream = read(&options, StreamPosition::default(), bytes, 4);
    let found: Vec<u64> = stream.events.iter().filter(|event| event.1.is_ok()).map(|event| event.0).collect();
    assert_eq!(found, [0, 10]);
    assert_eq!(stream.reasons().len(), 1);
    assert!(stream.reasons()[0].starts_with("is not UTF-16LE, at byte "), "{:?}", stream.reasons());
    check_places(&options, bytes, &stream, 4);
}

#[test]
fn a_message_that_grows_when_it_is_decoded_is_limited_to_a_quarter_of_the_memory() {
    let mut cutter = options(framing(b"\n", None), "latin1", 1 << 20).cutter(StreamPosition::default());
    cutter.within(400 << 10);
    let line = arrow_buffer::Buffer::from(vec![b'x'; 110 << 10].as_slice());
    let found = cutter.next_batch(&line, After::More).too_long.unwrap();
    assert_eq!(
        found.reason,
        "is longer than a quarter of `memory` (100KiB): it begins at byte 0, and only its first 4096 bytes are kept"
    );
}

#[test]
fn a_batch_of_decoded_messages_is_bounded() {
    let options = options(framing(b"\n", None), "latin1", 1 << 20);
    let text = [[0x80; 999].as_slice(), b"\n"].concat().repeat(1000);
    let bytes = arrow_buffer::Buffer::from(text.as_slice());
    let mut cutter = options.cutter(StreamPosition::default());
    let batch = cutter.next_batch(&bytes, After::More);
    assert!(!batch.is_last);
    assert_eq!(batch.positions.len(), (256_usize << 10).div_ceil(999));
}
