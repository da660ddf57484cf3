use proptest::prelude::*;

use super::*;

/// Decodes bytes that arrive in pieces. Returns the operations, and the error after them if there is one.
fn decode(bytes: &[u8], piece: usize, limit: usize) -> (Vec<Operation>, Option<String>) {
    let mut decoder = Decoder::new(limit);
    let mut operations = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.decode() {
                Ok(Some(operation)) => operations.push(operation),
                Ok(None) => break,
                Err(malformed) => return (operations, Some(malformed.to_string())),
            }
        }
    }
    (operations, None)
}

fn message(subject: &str, reply: Option<&str>, headers: &[u8], payload: &[u8]) -> Message {
    Message {
        subject: subject.into(),
        reply: reply.map(Into::into),
        headers: Headers::new(headers),
        headers_size: headers.len(),
        payload: payload.to_vec().into(),
        size: payload.len(),
    }
}

#[test]
fn operations_are_read_however_they_are_cut() {
    let all = b"INFO {\"server_id\":\"x\",\"tls_required\":true,\"nonce\":\"n\",\"max_payload\":1048576,\
                \"connect_urls\":[\"a:1\",\"[::1]:2\"],\"new\":{\"a\":[1]}} \r\n\
                PING\r\nPONG\r\n+OK\r\n-ERR 'Unknown Protocol Operation'\r\n\
                MSG a.b 7 5\r\nhe\r\no\r\nMSG  a 8 reply.to  0 \r\n\r\n\
                HMSG a 9 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHMSG a 9 r 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";
    let info = Info {
        tls_required: true,
        nonce: "n".to_owned(),
        connect_urls: vec!["a:1".to_owned(), "[::1]:2".to_owned()],
        max_payload: 1 << 20,
    };
    let expected = [
        Operation::Info(Box::new(info)),
        Operation::Ping,
        Operation::Pong,
        Operation::Ok,
        Operation::Error("Unknown Protocol Operation".to_owned()),
        Operation::Message(7, message("a.b", None, b"", b"he\r\no")),
        Operation::Message(8, message("a", Some("reply.to"), b"", b"")),
        Operation::Message(9, message("a", None, b"NATS/1.0\r\n\r\n", b"hi")),
        Operation::Message(9, message("a", Some("r"), b"NATS/1.0 503\r\n\r\n", b"")),
    ];
    for piece in [1, 2, 3, 7, 64, usize::MAX] {
        let (operations, error) = decode(all, piece, 1000);
        assert_eq!((&operations[..], error), (&expected[..], None), "{piece}");
    }
}

#[test]
fn lines_that_no_server_sends_are_errors() {
    let deep = format!("INFO {}\r\n", "[".repeat(60_000));
    let deep_part = format!("INFO {{\"connect_urls\":{}\r\n", "[".repeat(60_000));
    for (bytes, expected) in [
        ("HTTP/1.1 400 Bad Request\r\n", "a line that is not of NATS: `HTTP/1.1 400 Bad Request`"),
        ("\r\n", "a line that is not of NATS: ``"),
        ("MSG\r\n", "a line that is not of NATS: `MSG`"),
        ("MSG a 1\r\n", "a line that is not of NATS: `MSG a 1`"),
        ("MSG a 1 b 2 3\r\n", "a line that is not of NATS: `MSG a 1 b 2 3`"),
        ("HMSG a 1 2\r\n", "a line that is not of NATS: `HMSG a 1 2`"),
        ("MSG a x 1\r\n", "a message of an impossible size: `MSG a x 1`"),
        ("MSG a 1 -1\r\n", "a message of an impossible size: `MSG a 1 -1`"),
        ("MSG a 1 +1\r\n", "a message of an impossible size: `MSG a 1 +1`"),
        ("MSG a 1 2147483648\r\n", "a message of an impossible size: `MSG a 1 2147483648`"),
        ("MSG a 1 9223372036854775808\r\n", "a message of an impossible size: `MSG a 1 9223372036854775808`"),
        (
            "MSG a 1 18446744073709551615\r\n",
            "a message of an impossible size: `MSG a 1 18446744073709551615`",
        ),
        ("HMSG a 1 -1 5\r\n", "a message of an impossible size: `HMSG a 1 -1 5`"),
        ("HMSG a 1 6 5\r\n", "headers that are larger than their message: `HMSG a 1 6 5`"),
        ("MSG a 1 2\r\nabcd", "a message that is longer than it says"),
        ("INFO\r\n", "an `INFO` that cannot be read: EOF while parsing a value at line 1 column 0"),
        (
            "INFO {\"max_payload\":1.5}\r\n",
            "an `INFO` that cannot be read: invalid type: floating point `1.5`",
        ),
        (&deep, "an `INFO` that cannot be read: "),
        (&deep_part, "an `INFO` that cannot be read: "),
        ("X\u{1b}[31m\r\n", "a line that is not of NATS: `X\\u{1b}[31m`"),
    ] {
        for piece in [1000, usize::MAX] {
            let (operations, error) = decode(bytes.as_bytes(), piece, 1000);
            let error = error.unwrap();
            assert!(operations.is_empty());
            assert!(error.starts_with(&format!("the server sent {expected}")), "{error}");
        }
    }
}

#[test]
fn a_secret_is_not_shown_in_part() {
    let secret = "5Vn-a-token-that-a-server-of-nats-repeats";
    thalweg_redact::keep_credential(secret);
    for (before, after) in [(595, ""), (595, " and more"), (599, " and more")] {
        let start = "x".repeat(before);
        let (operations, _) = decode(format!("-ERR '{start}{secret}{after}'\r\n").as_bytes(), 1000, 1000);
        assert_eq!(operations, [Operation::Error(format!("{start}…"))], "{before} {after}");
    }
    let start = "x".repeat(55);
    let (_, error) = decode(format!("{start}{secret} and more\r\n").as_bytes(), 1000, 1000);
    assert_eq!(error.unwrap(), format!("the server sent a line that is not of NATS: `{start}…`"));
}

#[test]
fn a_subject_in_an_error_is_not_changed() {
    thalweg_redact::keep("tenant-of-nats", Some("${TENANT}"));
    let text = "Permissions Violation for Publish to \"tenant-of-nats.a\"";
    let (operations, _) = decode(format!("-ERR '{text}'\r\n").as_bytes(), 1000, 1000);
    assert_eq!(operations, [Operation::Error(text.to_owned())]);
}

#[test]
fn a_line_without_an_end_is_an_error_long_before_it_fills_the_memory() {
    let piece = [b'x'; 1000];
    for begin in ["", "INFO {\"a\":\"", "MSG ", "-ERR '"] {
        let mut decoder = Decoder::new(1000);
        decoder.buffer().extend_from_slice(begin.as_bytes());
        let mut taken = 0;
        let error = loop {
            decoder.buffer().extend_from_slice(&piece);
            taken += piece.len();
            match decoder.decode() {
                Ok(None) => {}
                other => break other.unwrap_err(),
            }
        };
        assert_eq!(error.to_string(), "the server sent a line of more than 65536 bytes");
        assert!(taken < 67_000, "{taken}");
    }
}

#[test]
fn of_a_large_message_only_the_beginning_is_kept_and_the_next_one_is_read() {
    let payload = vec![b'p'; 300_000];
    let headers = vec![b'h'; LARGEST_HEADERS + 1];
    let head = format!("HMSG a 1 {} {}\r\n", headers.len(), headers.len() + payload.len());
    let all = [head.as_bytes(), &headers, &payload, b"\r\nMSG b 2 1\r\nx\r\n"].concat();
    let mut decoder = Decoder::new(10);
    let mut operations = Vec::new();
    let mut largest = 0;
    for piece in all.chunks(5000) {
        decoder.buffer().extend_from_slice(piece);
        operations.extend(std::iter::from_fn(|| decoder.decode().unwrap()));
        largest = largest.max(decoder.buffer().len());
    }
    let mut first = message("a", None, b"", &payload[..10]);
    (first.headers_size, first.size) = (headers.len(), payload.len());
    let second = message("b", None, b"", b"x");
    assert_eq!(operations, [Operation::Message(1, first), Operation::Message(2, second)]);
    assert!(largest < 6000, "{largest}");
    // However large the message says that it is, memory is taken only for what arrived.
    let mut decoder = Decoder::new(usize::MAX);
    decoder.buffer().extend_from_slice(b"MSG a 1 2147483647\r\nabc");
    assert_eq!(decoder.decode(), Ok(None));
    assert!(decoder.buffer().capacity() < 1000);
}

#[test]
fn what_is_sent_is_what_the_protocol_says() {
    let headers = [("A".to_owned(), "1".to_owned()), ("Nats-Msg-Id".to_owned(), "x y".to_owned())];
    let plain = Publication { subject: "a.b", reply: None, headers: &[], payload: b"hello" };
    let full = Publication { reply: Some("r"), headers: &headers, ..plain };
    let mut out = Vec::new();
    subscribe(&mut out, 1, "a.>", None);
    subscribe(&mut out, 2, "b", Some("group"));
    publish(&mut out, &plain);
    publish(&mut out, &full);
    unsubscribe(&mut out, 1);
    connect(&mut out, &Connect { name: "n", protocol: 1, user: Some("u"), ..Connect::default() }).unwrap();
    let expected = "SUB a.> 1\r\nSUB b group 2\r\nPUB a.b 5\r\nhello\r\n\
                    HPUB a.b r 36 41\r\nNATS/1.0\r\nA: 1\r\nNats-Msg-Id: x y\r\n\r\nhello\r\nUNSUB 1\r\n\
                    CONNECT {\"verbose\":false,\"pedantic\":false,\"tls_required\":false,\"name\":\"n\",\
                    \"lang\":\"\",\"version\":\"\",\"protocol\":1,\"echo\":false,\"headers\":false,\
                    \"no_responders\":false,\"user\":\"u\"}\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert_eq!((plain.size(), full.size()), (5, 41));
    for subject in ["", "a b", "a\r\nPUB b 0", "a\tb", "a\u{7f}"] {
        let expected = Some("a subject has spaces".to_owned());
        assert_eq!(Publication { subject, ..plain }.mistake(), expected, "{subject}");
        assert_eq!(Publication { reply: Some(subject), ..plain }.mistake(), expected, "{subject}");
    }
    assert_eq!((plain.mistake(), full.mistake()), (None, None));
}

#[test]
fn a_line_that_a_server_does_not_take_is_not_sent() {
    let headers = [("A".to_owned(), "1".to_owned())];
    let longest = "s".repeat(4072);
    let message = Publication { subject: &longest, reply: Some("r"), headers: &headers, payload: b"" };
    assert_eq!(message.mistake(), None);
    let mut out = Vec::new();
    publish(&mut out, &message);
    let line = out.split(|byte| *byte == b'\r').next().unwrap();
    // Without `HPUB` and the space behind it.
    assert!(line.len() - 5 <= 4096, "{}", line.len());
    let longer = "s".repeat(4073);
    let expected = "the subject has 4073 bytes, more than a server takes (4072)";
    assert_eq!(Publication { subject: &longer, ..message }.mistake().as_deref(), Some(expected));
    assert_eq!(Publication { subject: &longer, reply: None, ..message }.mistake(), None);
}

proptest! {
    #[test]
    fn messages_that_are_sent_are_read_again(
        subject in "[a-z]{1,5}",
        reply in prop::option::of("[a-z]{1,5}"),
        values in prop::collection::vec("[ -~]{0,5}", 0..3),
        payload: Vec<u8>,
        piece in 1..50_usize,
    ) {
        let headers: Vec<(String, String)> =
            values.into_iter().enumerate().map(|(name, value)| (format!("H{name}"), value)).collect();
        let sent = Publication { subject: &subject, reply: reply.as_deref(), headers: &headers, payload: &payload };
        let mut out = Vec::new();
        publish(&mut out, &sent);
        // A server sends it on with the number of the subscription behind the subject.
        let text = out.split(|byte| *byte == b'\n').next().unwrap();
        let line = String::from_utf8(text.to_vec()).unwrap();
        let received = line.replacen("PUB", "MSG", 1).replacen(subject.as_str(), &format!("{subject} 3"), 1);
        let bytes = [received.as_bytes(), &out[text.len()..]].concat();
        let (operations, error) = decode(&bytes, piece, 1 << 20);
        prop_assert_eq!(error, None);
        let [Operation::Message(3, message)] = &operations[..] else { panic!("{operations:?}") };
        prop_assert_eq!((&*message.subject, message.reply.as_deref()), (&*subject, reply.as_deref()));
        prop_assert_eq!(&message.payload[..], &payload[..]);
        for (name, value) in &headers {
            let found = message.headers.get(name);
            prop_assert_eq!(found.as_deref(), Some(value.trim()));
        }
    }

    #[test]
    fn any_bytes_are_operations_or_an_error_however_they_are_cut(
        bytes in "(MSG a 1 [0-9]{1,2}\r\n|HMSG a 1 [0-9] [0-9]{1,2}\r\n|PING\r\n|\\PC{0,4}|\r\n){0,12}",
        piece in 1..9_usize,
        limit in 0..20_usize,
    ) {
        let whole = decode(bytes.as_bytes(), usize::MAX, limit);
        prop_assert_eq!(decode(bytes.as_bytes(), piece, limit), whole);
    }
}
