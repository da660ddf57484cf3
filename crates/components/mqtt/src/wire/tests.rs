use super::*;

use proptest::prelude::*;

/// Returns the packets of bytes that arrive in pieces of this size, with a limit for each.
fn packets(bytes: &[u8], piece: usize, limit: usize, version: Version) -> Result<Vec<Packet>, Malformed> {
    let mut frames = Frames::new(limit);
    let mut packets = Vec::new();
    for piece in bytes.chunks(piece) {
        frames.buffer().extend_from_slice(piece);
        while let Some(frame) = frames.cut()? {
            assert!(frame.body.len() <= limit);
            packets.push(parse(version, frame)?);
        }
    }
    Ok(packets)
}

fn one(bytes: &[u8], version: Version) -> Result<Packet, Malformed> {
    packets(bytes, bytes.len(), 1 << 20, version).map(|mut packets| packets.remove(0))
}

fn message<'a>(topic: &'a str, payload: &'a [u8], qos: Qos, properties: &'a [u8]) -> Outgoing<'a> {
    Outgoing { topic: topic.as_bytes(), payload, qos, is_retained: false, properties }
}

#[test]
fn packets_of_a_client_are_those_of_the_specification() {
    let mut out = Vec::new();
    let options = Connect {
        client_id: "ab",
        user: Some("u"),
        password: Some("p"),
        keep_alive: 60,
        is_clean: true,
        session_expiry: 1,
        receive_maximum: Some(10),
    };
    connect(Version::V3, &options, &mut out);
    assert_eq!(out, b"\x10\x14\0\x04MQTT\x04\xc2\0\x3c\0\x02ab\0\x01u\0\x01p");
    out.clear();
    connect(Version::V5, &Connect { user: None, password: None, ..options }, &mut out);
    assert_eq!(out, b"\x10\x17\0\x04MQTT\x05\x02\0\x3c\x08\x11\0\0\0\x01\x21\0\x0a\0\x02ab");
    out.clear();
    subscribe(Version::V3, 7, ["a/+", "b"], Qos::AtLeastOnce, &mut out);
    subscribe(Version::V5, 7, ["b"], Qos::ExactlyOnce, &mut out);
    assert_eq!(out, b"\x82\x0c\0\x07\0\x03a/+\x01\0\x01b\x01\x82\x07\0\x07\0\0\x01b\x12");
    out.clear();
    ack(Version::V3, AckKind::PubAck, 258, 0x80, &mut out);
    ack(Version::V5, AckKind::PubRel, 258, 0, &mut out);
    ack(Version::V5, AckKind::PubComp, 258, 0x92, &mut out);
    ping(&mut out);
    disconnect(&mut out);
    assert_eq!(out, b"\x40\x02\x01\x02\x62\x02\x01\x02\x70\x03\x01\x02\x92\xc0\0\xe0\0");
}

#[test]
fn a_message_is_read_as_it_was_written() {
    let mut properties = Vec::new();
    text_property(property::CONTENT_TYPE, b"text/plain", &mut properties);
    number_property(property::MESSAGE_EXPIRY, 9, &mut properties);
    pair_property(b"k", b"v1", &mut properties);
    pair_property(b"k", b"v2", &mut properties);
    let payload = vec![b'x'; 300];
    for (version, kept) in [(Version::V3, &[][..]), (Version::V5, &properties)] {
        let written = message("a/b", &payload, Qos::ExactlyOnce, &properties);
        let mut out = Vec::new();
        publish(version, &written, 5, true, &mut out);
        assert_eq!(out.len(), written.length(version));
        let Ok(Packet::Publish(read)) = one(&out, version) else { panic!() };
        assert_eq!((read.topic.as_str(), read.id, read.qos), ("a/b", 5, Qos::ExactlyOnce));
        assert!(read.is_duplicate && !read.is_retained && !read.has_large_properties);
        assert_eq!((&read.payload, read.length), (&payload, 300));
        assert_eq!(read.properties, kept);
    }
    let read = Properties::of(&properties);
    assert_eq!(read.text(property::CONTENT_TYPE), Some("text/plain"));
    assert_eq!(read.number(property::MESSAGE_EXPIRY), Some(9));
    assert_eq!((read.user("k"), read.user("l")), (Some("v1"), None));
}

#[test]
fn of_a_message_that_is_too_long_the_beginning_is_kept_and_its_length_is_known() {
    let mut bytes = Vec::new();
    let long = vec![b'x'; 5000];
    publish(Version::V3, &message("t", &long, Qos::AtLeastOnce, &[]), 1, false, &mut bytes);
    ack(Version::V3, AckKind::PubAck, 2, 0, &mut bytes);
    for piece in [1, 7, 100, 10_000] {
        let read = packets(&bytes, piece, 105, Version::V3).unwrap();
        let [Packet::Publish(message), Packet::PubAck(ack)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((message.payload.len(), message.length, ack.id), (100, 5000, 2));
    }
    let properties: Vec<u8> = (0..100).flat_map(|_| b"\x26\0\x01k\0\x01v".to_owned()).collect();
    let mut bytes = Vec::new();
    publish(Version::V5, &message("t", b"text", Qos::AtLeastOnce, &properties), 1, false, &mut bytes);
    let read = packets(&bytes, 64, 100, Version::V5).unwrap();
    let [Packet::Publish(message)] = &read[..] else { panic!("{read:?}") };
    assert!(message.has_large_properties && message.payload.is_empty());
    assert_eq!(message.length, 700);
}

#[test]
fn answers_have_the_reason_of_the_server() {
    let reason = |packet| match packet {
        Ok(Packet::ConnAck(ConnAck { reason, .. })) => reason.to_string(),
        Ok(Packet::PubAck(ack)) => ack.reason.to_string(),
        Ok(Packet::Disconnect(end)) => end.reason.to_string(),
        other => panic!("{other:?}"),
    };
    for (version, bytes, expected) in [
        (Version::V3, &b"\x20\x02\x01\x00"[..], "success (0x00)"),
        (Version::V3, b"\x20\x02\0\x05", "not authorized (0x87)"),
        (Version::V3, b"\x20\x02\0\x01", "unsupported version of the protocol (0x84)"),
        (Version::V5, b"\x20\x03\0\x86\0", "bad user name or password (0x86)"),
        (Version::V5, b"\x40\x02\0\x01", "success (0x00)"),
        (Version::V5, b"\x40\x03\0\x01\x10", "no matching subscribers (0x10)"),
        (Version::V5, b"\x40\x09\0\x01\x97\x05\x1f\0\x02no", "quota exceeded (0x97): no"),
        (Version::V5, b"\xe0\x01\x8e", "session taken over (0x8e)"),
        (Version::V5, b"\xe0\0", "success (0x00)"),
    ] {
        assert_eq!(reason(one(bytes, version)), expected);
    }
    let Ok(Packet::SubAck(answer)) = one(b"\x90\x04\0\x01\x01\x80", Version::V3) else { panic!() };
    assert_eq!(answer.reasons().map(|reason| reason.code).collect::<Vec<_>>(), [1, 0x80]);
    let long = [&b"\x40\xcd\x02\0\x01\x97\xc8\x02\x1f\x01\x45"[..], &[b'x'; 325]].concat();
    assert_eq!(reason(one(&long, Version::V5)).len(), "quota exceeded (0x97): ".len() + 200);
}

#[test]
fn a_secret_is_not_shown_in_part() {
    let secret = "8Kd-a-token-that-a-broker-repeats";
    thalweg_redact::keep_credential(secret);
    for before in [195, 199] {
        let start = "x".repeat(before);
        let text = format!("{start}{secret}");
        let mut properties = Vec::new();
        text_property(property::REASON_STRING, text.as_bytes(), &mut properties);
        // Of two bytes: the length is above 127.
        let length = |bytes: usize| [(bytes % 128) as u8 | 0x80, (bytes / 128) as u8];
        let body = [b"\0\x01\x97".as_slice(), &length(properties.len()), &properties].concat();
        let packet = [b"\x40".as_slice(), &length(body.len()), &body].concat();
        let Ok(Packet::PubAck(ack)) = one(&packet, Version::V5) else { panic!() };
        assert_eq!(ack.reason.text, Some(format!("{start}…")));
    }
}

#[test]
fn a_reason_says_what_can_be_done() {
    for (code, expected) in [
        (0x00, Remedy::None),
        (0x10, Remedy::None),
        (0x87, Remedy::Change),
        (0x88, Remedy::Retry),
        (0x8b, Remedy::Retry),
        (0x97, Remedy::Wait),
        // For some time only. Where the server has moved for good, the options are to be changed.
        (0x9c, Remedy::Retry),
        (0x9d, Remedy::Change),
        (0xff, Remedy::Retry),
    ] {
        assert_eq!(Reason::new(code).remedy(), expected, "{code:#x}");
    }
}

#[test]
fn bytes_that_no_server_sends_are_refused() {
    for (version, bytes, expected) in [
        (Version::V3, &b"\x00\x00"[..], "a packet has a kind that servers do not send"),
        (Version::V3, b"\xe0\x00", "a packet has a kind that servers do not send"),
        (Version::V3, b"\x41\x02\0\x01", "a packet has unknown flags"),
        (Version::V3, b"\x40\x01\0", "it is shorter than its parts"),
        (Version::V3, b"\x36\x03\0\x01t", "a message has an unknown QoS"),
        (Version::V3, b"\x30\x02\0\0", "a message has no topic"),
        (Version::V3, b"\x30\x03\0\x01\xff", "a text is not UTF-8"),
        (Version::V3, b"\x32\x05\0\x01t\0\0", "a message has the number 0"),
        (Version::V5, b"\x30\x05\0\x01t\x01\x99", "a property has an unknown identifier"),
        (Version::V5, b"\x30\x04\0\x01t\x05", "it is shorter than its parts"),
        (Version::V5, b"\xff\xff\xff\xff\xff", "a length has more than four bytes"),
    ] {
        assert_eq!(one(bytes, version), Err(Malformed(expected)), "{bytes:?}");
    }
    let long = [&b"\x20\xff\xff\x03"[..], &[0; 200]].concat();
    assert_eq!(packets(&long, 10, 100, Version::V3), Err(Malformed("a packet is too long for its kind")));
}

proptest! {
    #[test]
    fn any_bytes_are_packets_or_refused_however_they_arrive(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        piece in 1..20_usize,
        limit in 1..100_usize,
        is_v5: bool,
    ) {
        let version = if is_v5 { Version::V5 } else { Version::V3 };
        let at_once = packets(&bytes, bytes.len().max(1), limit, version);
        let in_pieces = packets(&bytes, piece, limit, version);
        prop_assert_eq!(at_once, in_pieces);
    }

    #[test]
    fn any_message_is_read_as_it_was_written(
        topic in "[a-z/]{1,20}",
        payload in prop::collection::vec(any::<u8>(), 0..300),
        qos in 0..3_u8,
        id in 1..u16::MAX,
        is_v5: bool,
    ) {
        let version = if is_v5 { Version::V5 } else { Version::V3 };
        let qos = Qos::of(qos).unwrap();
        let mut bytes = Vec::new();
        publish(version, &message(&topic, &payload, qos, &[]), id, false, &mut bytes);
        let Ok(Packet::Publish(read)) = one(&bytes, version) else { panic!() };
        prop_assert_eq!((&read.topic, &read.payload, read.qos), (&topic, &payload, qos));
        prop_assert_eq!(read.id, if qos == Qos::AtMostOnce { 0 } else { id });
    }
}
