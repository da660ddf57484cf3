//! GELF in datagrams: joins the chunks of a message, and decompresses messages.
//!
//! A chunk begins with two magic bytes, the eight bytes that name its message, its number, and the number of
//! chunks. Chunks arrive in any order. All chunks of a message must arrive within 5 seconds. Messages are
//! compressed with gzip or zlib, as a whole, or not at all.
//!
//! Anyone can send chunks that never become a message. So the memory of incomplete messages has a limit. At
//! the limit, the oldest incomplete message is rejected. Messages of different senders with the same name are
//! different messages: otherwise any sender could spoil those of all others.
//!
//! The format is described at <https://go2docs.graylog.org/current/getting_in_log_data/gelf.html>.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::time::Duration;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use thalweg_codec::framing::KEPT;
use thalweg_config::ByteSize;
use thalweg_record::{Budget, Lease};
use tokio::time::Instant;

use super::listener::Sender;

/// The first bytes of a chunk.
const MAGIC: [u8; 2] = [0x1e, 0x0f];

/// The size of the head of a chunk, in bytes.
const HEAD: usize = 12;

/// The maximum number of chunks of a message.
const MOST_CHUNKS: u8 = 128;

/// How long the chunks of a message may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The memory of a chunk beside its bytes.
const CHUNK: usize = 64;

/// The maximum size of all chunks of incomplete messages, in bytes, with enough memory.
const MOST_BYTES: usize = 16 << 20;

/// A message of which some chunks have not arrived.
#[derive(Debug)]
struct Incomplete {
    key: Key,
    since: Instant,
    /// The chunks by their number.
    chunks: Box<[Option<Box<[u8]>>]>,
    missing: usize,
}

/// The sender of a message, and the name that it gave to the message.
type Key = (Sender, [u8; 8]);

/// Joins chunks.
#[derive(Debug)]
pub(super) struct Chunks {
    /// The incomplete messages by their age.
    incomplete: BTreeMap<u64, Incomplete>,
    numbers: HashMap<Key, u64>,
    /// The number of the next message.
    next: u64,
    /// The size of all chunks, with what each takes beside its bytes.
    bytes: usize,
    lease: Lease,
    most_bytes: usize,
    limit: ByteSize,
    budget: Budget,
    /// Messages that cannot be used, to be taken by the caller.
    pub(super) lost: Vec<Lost>,
}

/// A message that cannot be used: its sender, its first bytes, and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) sender: Sender,
    pub(super) bytes: Vec<u8>,
    pub(super) reason: String,
}

impl Chunks {
    /// Starts without chunks. `limit` is the maximum size of a message.
    pub(super) fn new(limit: ByteSize, budget: &Budget) -> Self {
        Self {
            incomplete: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 0,
            bytes: 0,
            lease: budget.claim(0),
            most_bytes: MOST_BYTES.min(budget.limit() / 4),
            limit,
            budget: budget.clone(),
            lost: Vec::new(),
        }
    }

    /// Takes a datagram, and appends the message that it is, or completes, to `out`. Returns false if there
    /// is none: chunks are missing, or the message is lost.
    pub(super) fn take(&mut self, sender: Sender, datagram: &[u8], now: Instant, out: &mut Vec<u8>) -> bool {
        let whole = match datagram.starts_with(&MAGIC) {
            true => match self.add(sender, datagram, now) {
                Ok(Some(whole)) => Cow::Owned(whole),
                Ok(None) => return false,
                Err(reason) => {
                    self.lose(sender, datagram, &reason);
                    return false;
                }
            },
            false => Cow::Borrowed(datagram),
        };
        let start = out.len();
        if let Err(reason) = decompress(&whole, self.limit, out) {
            out.truncate(start);
            self.lose(sender, &whole, &reason);
            return false;
        }
        true
    }

    /// Adds a chunk. Returns the message if no other chunk is missing.
    fn add(&mut self, sender: Sender, datagram: &[u8], now: Instant) -> Result<Option<Vec<u8>>, String> {
        let Chunk { name, number, count, bytes } = Chunk::of(datagram)?;
        let key = (sender, name);
        let age = *self.numbers.entry(key).or_insert(self.next);
        if age == self.next {
            self.next += 1;
            self.bytes += CHUNK * (count + 1);
            let chunks = std::iter::repeat_with(|| None).take(count).collect();
            self.incomplete.insert(age, Incomplete { key, since: now, chunks, missing: count });
        }
        let Some(incomplete) = self.incomplete.get_mut(&age) else { return Ok(None) };
        let known = incomplete.chunks.len();
        if known != count {
            return Err(format!("is one of {count} chunks, but an earlier one was one of {known}"));
        }
        if let Some(place) = incomplete.chunks.get_mut(number)
            && place.is_none()
        {
            // Networks may deliver a datagram twice. The first one counts.
            *place = Some(bytes.into());
            incomplete.missing -= 1;
            self.bytes += bytes.len();
        }
        let is_whole = incomplete.missing == 0;
        let whole = if is_whole { self.remove(age).map(|whole| whole.joined()) } else { None };
        while self.bytes > self.most_bytes
            && let Some(&oldest) = self.incomplete.keys().next()
        {
            self.give_up(oldest, thalweg_record::Incomplete::REASON);
        }
        self.lease = self.budget.claim(self.bytes);
        Ok(whole)
    }

    /// Removes an incomplete message.
    fn remove(&mut self, age: u64) -> Option<Incomplete> {
        let incomplete = self.incomplete.remove(&age)?;
        self.numbers.remove(&incomplete.key);
        self.bytes -= incomplete.bytes();
        Some(incomplete)
    }

    /// Rejects an incomplete message.
    fn give_up(&mut self, age: u64, reason: &str) {
        let Some(incomplete) = self.remove(age) else { return };
        let (missing, all) = (incomplete.missing, incomplete.chunks.len());
        let reason = format!("{missing} of its {all} chunks are missing: {reason}");
        self.lose(incomplete.key.0, &incomplete.joined(), &reason);
    }

    fn lose(&mut self, sender: Sender, bytes: &[u8], reason: &str) {
        let bytes = bytes.get(..KEPT).unwrap_or(bytes).to_vec();
        self.lost.push(Lost { sender, bytes, reason: reason.to_owned() });
    }

    /// Returns when the oldest incomplete message expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.incomplete.values().next().map(|oldest| oldest.since + TIMEOUT)
    }

    /// Rejects the incomplete messages whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_expiry().is_some_and(|expiry| now >= expiry)
            && let Some(&oldest) = self.incomplete.keys().next()
        {
            self.give_up(oldest, "the others did not arrive within 5 seconds");
        }
        self.lease = self.budget.claim(self.bytes);
    }

    /// Rejects all incomplete messages: the source ends.
    pub(super) fn end(&mut self) {
        while let Some(&oldest) = self.incomplete.keys().next() {
            self.give_up(oldest, "the source ended");
        }
    }
}

/// Joins the datagrams of one sender. Returns the messages, and the number of those that are lost. Public for
/// its fuzz target.
#[doc(hidden)]
pub fn joined(datagrams: &[&[u8]], limit: ByteSize, budget: &Budget) -> (Vec<Vec<u8>>, usize) {
    let mut chunks = Chunks::new(limit, budget);
    let mut messages = Vec::new();
    for datagram in datagrams {
        let mut message = Vec::new();
        if chunks.take(Sender::Unix, datagram, Instant::now(), &mut message) {
            messages.push(message);
        }
    }
    chunks.end();
    (messages, chunks.lost.len())
}

/// A chunk of a message.
struct Chunk<'a> {
    name: [u8; 8],
    number: usize,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Reads a datagram that begins with [`MAGIC`].
    fn of(datagram: &'a [u8]) -> Result<Self, String> {
        let Some(([_, _, name @ .., number, count], bytes)) = datagram.split_first_chunk::<HEAD>() else {
            return Err(format!("is a chunk of GELF, but shorter than its head of {HEAD} bytes"));
        };
        if number >= count || *count > MOST_CHUNKS {
            return Err(format!(
                "is chunk {number} of {count} of GELF, but the first chunk is 0, and there are at most {MOST_CHUNKS}"
            ));
        }
        Ok(Self { name: *name, number: usize::from(*number), count: usize::from(*count), bytes })
    }
}

impl Incomplete {
    /// Returns the size of its chunks, with what each takes beside its bytes.
    fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().map(|chunk| chunk.len());
        CHUNK * (self.chunks.len() + 1) + chunks.sum::<usize>()
    }

    /// Returns the chunks that have arrived, one after another.
    fn joined(&self) -> Vec<u8> {
        self.chunks.iter().flatten().flat_map(|chunk| chunk.iter().copied()).collect()
    }
}

/// Appends a message to `out`, decompressed.
fn decompress(message: &[u8], limit: ByteSize, out: &mut Vec<u8>) -> Result<(), String> {
    let most = limit.bytes() + 1;
    let start = out.len();
    let (format, read) = match message {
        [0x1f, 0x8b, ..] => ("gzip", MultiGzDecoder::new(message).take(most).read_to_end(out)),
        // The method is `deflate`, and both bytes are a multiple of 31.
        [method, flags, ..]
            if method & 0x0f == 8
                && method >> 4 <= 7
                && u16::from_be_bytes([*method, *flags]).is_multiple_of(31) =>
        {
            ("zlib", ZlibDecoder::new(message).take(most).read_to_end(out))
        }
        plain => {
            out.extend_from_slice(plain);
            return Ok(());
        }
    };
    match read {
        Ok(_) if (out.len() - start) as u64 > limit.bytes() => {
            Err(format!("is longer than `max_message_bytes` ({limit}) when it is decompressed"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("its {format} data cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::SocketAddr;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    fn chunks(limit: u64, memory: usize) -> Chunks {
        Chunks::new(ByteSize(limit), &Budget::new(memory))
    }

    fn chunk(name: u8, number: u8, count: u8, bytes: &[u8]) -> Vec<u8> {
        [&MAGIC, &[name; 8][..], &[number, count], bytes].concat()
    }

    fn take(chunks: &mut Chunks, datagram: &[u8]) -> Option<String> {
        let mut out = b"before".to_vec();
        let is_whole = chunks.take(Sender::Unix, datagram, Instant::now(), &mut out);
        let rest = String::from_utf8(out.split_off(6)).unwrap();
        assert!(out == b"before" && (is_whole || rest.is_empty()));
        is_whole.then_some(rest)
    }

    fn reasons(chunks: &mut Chunks) -> Vec<String> {
        std::mem::take(&mut chunks.lost).into_iter().map(|lost| lost.reason).collect()
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &str, level: u32) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn chunks_in_any_order_are_one_message() {
        let mut all = chunks(100, 1 << 20);
        assert_eq!(take(&mut all, &chunk(1, 2, 3, b"c")), None);
        assert_eq!(take(&mut all, &chunk(2, 0, 2, b"x")), None);
        assert_eq!(take(&mut all, &chunk(1, 0, 3, b"a")), None);
        // Twice, and another message in between.
        assert_eq!(take(&mut all, &chunk(1, 0, 3, b"z")), None);
        assert_eq!(take(&mut all, b"plain").as_deref(), Some("plain"));
        assert_eq!(take(&mut all, &chunk(1, 1, 3, b"b")).as_deref(), Some("abc"));
        assert_eq!(take(&mut all, &chunk(2, 1, 2, b"y")).as_deref(), Some("xy"));
        assert_eq!(take(&mut all, &chunk(1, 0, 1, b"alone")).as_deref(), Some("alone"));
        assert_eq!((all.lost.len(), all.bytes, all.lease.bytes(), all.next_expiry()), (0, 0, 0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_decompressed_whole() {
        let mut all = chunks(1000, 1 << 20);
        let text = "{\"short_message\":\"x\"}".repeat(20);
        for message in [gzip(&text), zlib(&text, 1), zlib(&text, 9)] {
            assert_eq!(take(&mut all, &message).as_ref(), Some(&text));
            let (first, second) = message.split_at(message.len() / 2);
            assert_eq!(take(&mut all, &chunk(7, 1, 2, second)), None);
            assert_eq!(take(&mut all, &chunk(7, 0, 2, first)).as_ref(), Some(&text));
        }
        assert_eq!(reasons(&mut all), [""; 0]);
        assert_eq!(take(&mut all, &gzip(&"x".repeat(1001))), None);
        assert_eq!(take(&mut all, b"\x1f\x8bxx"), None);
        assert_eq!(take(&mut all, &zlib("text", 6)[..6]), None);
        let reasons = reasons(&mut all);
        assert_eq!(reasons[0], "is longer than `max_message_bytes` (1kB) when it is decompressed");
        assert!(reasons[1].starts_with("its gzip data cannot be read: "), "{}", reasons[1]);
        assert!(reasons[2].starts_with("its zlib data cannot be read: "), "{}", reasons[2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_whose_chunks_do_not_come_in_time_is_lost() {
        let mut all = chunks(100, 1 << 20);
        take(&mut all, &chunk(1, 1, 3, b"b"));
        tokio::time::advance(Duration::from_secs(1)).await;
        take(&mut all, &chunk(2, 0, 2, b"x"));
        assert_eq!(all.next_expiry(), Some(Instant::now() + Duration::from_secs(4)));
        tokio::time::advance(Duration::from_secs(4)).await;
        all.expire(Instant::now());
        let lost = std::mem::take(&mut all.lost);
        let reason = "2 of its 3 chunks are missing: the others did not arrive within 5 seconds".to_owned();
        assert_eq!(lost, [Lost { sender: Sender::Unix, bytes: b"b".to_vec(), reason }]);
        assert_eq!(take(&mut all, &chunk(2, 1, 2, b"y")).as_deref(), Some("xy"));
        take(&mut all, &chunk(3, 0, 2, b"z"));
        all.end();
        assert_eq!(reasons(&mut all), ["1 of its 2 chunks are missing: the source ended"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_chunk_says_why() {
        let mut all = chunks(100, 1 << 20);
        for datagram in [&MAGIC[..], &chunk(1, 2, 2, b""), &chunk(1, 0, 0, b""), &chunk(1, 0, 129, b"")] {
            assert_eq!(take(&mut all, datagram), None);
        }
        take(&mut all, &chunk(1, 0, 2, b""));
        take(&mut all, &chunk(1, 1, 3, b""));
        let limits = "of GELF, but the first chunk is 0, and there are at most 128";
        assert_eq!(
            reasons(&mut all),
            [
                "is a chunk of GELF, but shorter than its head of 12 bytes".to_owned(),
                format!("is chunk 2 of 2 {limits}"),
                format!("is chunk 0 of 0 {limits}"),
                format!("is chunk 0 of 129 {limits}"),
                "is one of 3 chunks, but an earlier one was one of 2".to_owned(),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn senders_with_the_same_names_do_not_disturb_each_other() {
        let mut all = chunks(100, 1 << 20);
        let (mut out, now) = (Vec::new(), Instant::now());
        let sender = |port| Sender::Udp(SocketAddr::from(([127, 0, 0, 1], port)));
        assert!(!all.take(sender(1), &chunk(1, 0, 2, b"a"), now, &mut out));
        assert!(!all.take(sender(2), &chunk(1, 1, 2, b"y"), now, &mut out));
        assert!(all.take(sender(2), &chunk(1, 0, 2, b"x"), now, &mut out));
        assert!(all.take(sender(1), &chunk(1, 1, 2, b"b"), now, &mut out));
        assert_eq!(out, b"xyab");
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_messages_do_not_take_more_memory_than_allowed() {
        let mut all = chunks(1 << 20, 4 << 20);
        for number in 0..2000_u64 {
            let mut datagram = chunk(0, 0, 128, &[b'x'; 1000]);
            datagram[2..10].copy_from_slice(&number.to_be_bytes());
            take(&mut all, &datagram);
            assert!(all.bytes <= 1 << 20 && all.lease.bytes() == all.bytes, "{}", all.bytes);
        }
        assert_eq!(all.lost.len() + all.incomplete.len(), 2000);
        assert_eq!(all.numbers.len(), all.incomplete.len());
        assert_eq!(
            reasons(&mut all)[0],
            "127 of its 128 chunks are missing: incomplete messages used up the memory, and it was the oldest of them"
        );
    }

    proptest! {
        #[test]
        fn messages_are_those_that_were_cut(
            messages in prop::collection::vec(prop::collection::vec("[a-g]{0,3}", 1..5), 1..6),
            order in prop::collection::vec(any::<prop::sample::Index>(), 40),
        ) {
            let mut datagrams: Vec<Vec<u8>> = Vec::new();
            for (name, pieces) in messages.iter().enumerate() {
                let count = pieces.len() as u8;
                let all = pieces.iter().enumerate();
                datagrams.extend(all.map(|(at, piece)| chunk(name as u8, at as u8, count, piece.as_bytes())));
            }
            let mut all = chunks(100, 1 << 20);
            let (mut found, mut order) = (Vec::new(), order.into_iter());
            let now = Instant::now();
            while !datagrams.is_empty() {
                let datagram = datagrams.swap_remove(order.next().unwrap().index(datagrams.len()));
                let mut out = Vec::new();
                if all.take(Sender::Unix, &datagram, now, &mut out) {
                    found.push(String::from_utf8(out).unwrap());
                }
            }
            found.sort();
            let mut expected: Vec<String> = messages.iter().map(|pieces| pieces.concat()).collect();
            expected.sort();
            prop_assert_eq!((found, all.lost.len(), all.bytes), (expected, 0, 0));
        }
    }
}
