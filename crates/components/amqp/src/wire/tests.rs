use proptest::prelude::*;

use super::*;

/// Reads the events of bytes that arrive in pieces.
fn events(bytes: &[u8], piece: usize, limit: usize) -> Result<Vec<Event>, Malformed> {
    let (mut frames, mut assembler) = (Frames::new(128 << 10), Assembler::new(limit));
    let mut events = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        frames.buffer().extend_from_slice(piece);
        while let Some(event) = assembler.next(&mut frames)? {
            events.push(event);
        }
    }
    Ok(events)
}

fn one(bytes: &[u8]) -> Result<Event, Malformed> {
    events(bytes, bytes.len(), 1000).map(|mut events| events.remove(0))
}

/// Appends a message of the consumer `0` from the exchange `x` with the key `k`.
fn delivery(tag: u64, properties: &[u8], payload: &[u8], part: usize, out: &mut Vec<u8>) {
    method(1, 60, 60, out, |out| {
        short_text(b"0", out);
        out.extend_from_slice(&tag.to_be_bytes());
        out.push(1);
        short_text(b"x", out);
        short_text(b"k", out);
    });
    header(payload.len(), properties, out);
    payload.chunks(part).for_each(|part| body(part, out));
}

/// The bytes of properties with a header table of these bytes and the message id `m`.
fn properties(headers: &[u8]) -> Vec<u8> {
    let mut out = (Property::Headers.flag() | Property::DeliveryMode.flag() | Property::MessageId.flag())
        .to_be_bytes()
        .to_vec();
    long_text(headers, &mut out);
    out.push(2);
    short_text(b"m", &mut out);
    out
}

#[test]
fn frames_of_a_client_are_those_of_the_specification() {
    let mut out = Vec::new();
    tune_ok(0x0002_0000, 60, &mut out);
    assert_eq!(out, b"\x01\0\0\0\0\0\x0c\0\x0a\0\x1f\0\x01\0\x02\0\0\0\x3c\xce");
    out.clear();
    open("/", &mut out);
    channel_open(&mut out);
    assert_eq!(out, b"\x01\0\0\0\0\0\x08\0\x0a\0\x28\x01/\0\0\xce\x01\0\x01\0\0\0\x05\0\x14\0\x0a\0\xce");
    out.clear();
    queue_declare("q", true, false, &table([("a", Argument::Bool(true))]), &mut out);
    assert_eq!(out, b"\x01\0\x01\0\0\0\x11\0\x32\0\x0a\0\0\x01q\x02\0\0\0\x04\x01at\x01\xce".as_slice());
    out.clear();
    ack(5, true, &mut out);
    nack(6, true, &mut out);
    assert_eq!(
        out,
        b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\0\x05\x01\xce\
          \x01\0\x01\0\0\0\x0d\0\x3c\0\x78\0\0\0\0\0\0\0\x06\x02\xce"
            .as_slice()
    );
    out.clear();
    publish(PublishTo { exchange: "e", routing_key: b"k", is_mandatory: true }, &mut out);
    header(2, b"\0\0", &mut out);
    body(b"hi", &mut out);
    heartbeat(&mut out);
    assert_eq!(
        out,
        b"\x01\0\x01\0\0\0\x0b\0\x3c\0\x28\0\0\x01e\x01k\x01\xce\
          \x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\x02\0\0\xce\
          \x03\0\x01\0\0\0\x02hi\xce\x08\0\0\0\0\0\0\xce"
            .as_slice()
    );
}

#[test]
fn a_message_is_put_together_however_it_arrives() {
    let mut bytes = Vec::new();
    let payload = b"0123456789".repeat(10);
    delivery(7, &properties(b""), &payload, 9, &mut bytes);
    heartbeat(&mut bytes);
    for piece in [1, 5, 1000] {
        let read = events(&bytes, piece, 1000).unwrap();
        let [Event::Delivery(message), Event::Heartbeat] = &read[..] else { panic!("{read:?}") };
        assert_eq!((message.tag, message.is_redelivered, message.consumer.as_str()), (7, true, "0"));
        assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("x", "k"));
        assert_eq!((&message.payload, message.length), (&payload, 100));
        let read = Properties::of(&message.properties);
        assert_eq!(
            (read.text(Property::MessageId), read.number(Property::DeliveryMode)),
            (Some("m"), Some(2))
        );
        assert_eq!(read.text(Property::AppId), None);
    }
}

#[test]
fn of_a_message_that_is_too_long_the_beginning_is_kept_and_its_length_is_known() {
    let mut bytes = Vec::new();
    delivery(1, b"\0\0", &[b'x'; 5000], 1000, &mut bytes);
    delivery(2, b"\0\0", b"", 1, &mut bytes);
    for piece in [1, 7, 10_000] {
        let read = events(&bytes, piece, 100).unwrap();
        let [Event::Delivery(long), Event::Delivery(empty)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((long.payload.len(), long.length), (100, 5000));
        assert_eq!((empty.tag, empty.payload.len(), empty.length), (2, 0, 0));
    }
}

#[test]
fn headers_of_all_types_are_texts() {
    let mut fields = Vec::new();
    let mut field = |name: &str, value: &[u8]| {
        short_text(name.as_bytes(), &mut fields);
        fields.extend_from_slice(value);
    };
    field("text", b"S\0\0\0\x02hi");
    field("yes", b"t\x01");
    field("small", b"b\xff");
    field("int", b"I\xff\xff\xff\xfe");
    field("long", b"l\0\0\0\0\0\0\x01\0");
    field("half", b"f\x3f\0\0\0");
    field("decimal", b"D\x02\0\0\0\x05");
    field("tiny", b"D\xff\0\0\0\x05");
    field("huge", b"d\x7f\xe0\0\0\0\0\0\0");
    field("time", b"T\0\0\0\0\0\0\0\x09");
    field("none", b"V");
    field("list", b"A\0\0\0\x0bS\0\0\0\x02a\"Vt\0V");
    field("table", b"F\0\0\0\x0b\x01aB\x07\x01bS\0\0\0\0");
    field("odd", b"?");
    field("hidden", b"t\x01");
    let bytes = properties(&fields);
    let read = Properties::of(&bytes);
    for (name, expected) in [
        ("text", Some("hi")),
        ("yes", Some("true")),
        ("small", Some("-1")),
        ("int", Some("-2")),
        ("long", Some("256")),
        ("half", Some("0.5")),
        ("decimal", Some("0.05")),
        ("tiny", Some("5e-255")),
        ("huge", Some("8.98846567431158e307")),
        ("time", Some("9")),
        ("none", None),
        ("list", Some(r#"["a\"",null,false,null]"#)),
        ("table", Some(r#"{"a":7,"b":""}"#)),
        ("odd", None),
        ("hidden", None),
        ("other", None),
    ] {
        assert_eq!(read.header(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn tables_within_each_other_are_read_to_a_depth_and_not_beyond() {
    let nested = |depth: usize| {
        let mut value = b"V".to_vec();
        for _ in 0..depth {
            let mut outer = b"A".to_vec();
            long_text(&value, &mut outer);
            value = outer;
        }
        let mut fields = Vec::new();
        short_text(b"deep", &mut fields);
        fields.extend_from_slice(&value);
        let bytes = properties(&fields);
        Properties::of(&bytes).header("deep")
    };
    assert_eq!(nested(2).as_deref(), Some("[[null]]"));
    assert!(nested(31).is_some());
    assert_eq!(nested(1000), None);
}

#[test]
fn answers_have_the_text_of_the_server() {
    let mut bytes = Vec::new();
    method(1, 20, 40, &mut bytes, |out| {
        out.extend_from_slice(&404_u16.to_be_bytes());
        short_text(b"NOT_FOUND - no queue 'q' in vhost '/'", out);
        out.extend_from_slice(&[0; 4]);
    });
    let Ok(Event::Method(Method::ChannelClose(close))) = one(&bytes) else { panic!() };
    assert_eq!(close.to_string(), "NOT_FOUND - no queue 'q' in vhost '/' (404)");
    assert!(close.is_lasting() && close.code == 404 && !close.concerns_message());
}

#[test]
fn bytes_that_no_server_sends_are_refused() {
    let mut unfinished = Vec::new();
    delivery(1, b"\0\0", b"text", 2, &mut unfinished);
    unfinished.truncate(unfinished.len() - 10);
    method(1, 60, 80, &mut unfinished, |out| out.extend_from_slice(&[0; 9]));
    let mut long = Vec::new();
    header(1, b"\0\0", &mut long);
    let mut excess = Vec::new();
    method(1, 60, 60, &mut excess, |out| out.extend_from_slice(&[0; 12]));
    header(1, b"\0\0", &mut excess);
    body(b"xy", &mut excess);
    for (bytes, expected) in [
        (&b"AMQP\0\0\x09\x01"[..], "the server does not speak AMQP 0.9.1"),
        (b"HTTP/1.1 400", "a frame has an unknown kind"),
        (b"\x01\0\0\xff\xff\xff\xff", "a frame is longer than was agreed"),
        (b"\x08\0\0\0\0\0\0\0", "a frame has no end"),
        (b"\x01\0\0\0\0\0\x02\0\x0a\xce", "it is shorter than its parts"),
        (b"\x01\0\0\0\0\0\x04\0\x0a\0\x63\xce", "a method is none that servers send"),
        (b"\x01\0\x02\0\0\0\x04\0\x14\0\x0b\xce", "a frame has an unknown channel"),
        (b"\x03\0\x01\0\0\0\x01x\xce", "a payload belongs to no message"),
        (&long[..], "a header belongs to no message"),
        (&unfinished[..], "a message is not complete"),
        (&excess[..], "a payload is longer than its message"),
    ] {
        assert_eq!(one(bytes), Err(Malformed(expected)), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_events_or_refused_however_they_arrive(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        piece in 1..20_usize,
        limit in 1..100_usize,
    ) {
        prop_assert_eq!(events(&bytes, bytes.len(), limit), events(&bytes, piece, limit));
    }

    #[test]
    fn any_message_is_read_as_it_was_written(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        part in 1..50_usize,
        headers in prop::collection::vec(("[a-z]{1,9}", any::<i64>()), 0..5),
    ) {
        let fields = headers.iter().map(|(name, value)| (name.as_str(), Argument::Number(*value)));
        let mut bytes = Vec::new();
        delivery(1, &properties(&table(fields)), &payload, part, &mut bytes);
        let Ok(Event::Delivery(read)) = one(&bytes) else { panic!() };
        prop_assert_eq!(&read.payload, &payload);
        for (name, _) in &headers {
            let first = headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.to_string());
            prop_assert_eq!(Properties::of(&read.properties).header(name), first);
        }
    }

    #[test]
    fn any_properties_are_read_or_not_there(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let read = Properties::of(&bytes);
        let _ = (read.text(Property::ClusterId), read.number(Property::Timestamp), read.header("a"));
    }
}
