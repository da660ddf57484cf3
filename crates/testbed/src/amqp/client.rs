//! A client of AMQP 0.9.1 for tests: it does one thing after the other, and waits for each.
//!
//! It shares no code with the component under test.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::AmqpMessage;

/// How long the server may take for an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// The messages that are published or read at once.
const AT_ONCE: usize = 500;
/// The largest payload of a frame.
const PART: usize = 100_000;

/// Whether messages stay in their queue when they are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Keep,
    Take,
}

/// A connection with one channel.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    /// Frames that are not written yet.
    out: Vec<u8>,
}

/// The class and the number of a method.
type Id = (u16, u16);

const GET_OK: Id = (60, 71);
const GET_EMPTY: Id = (60, 72);
const ACK: Id = (60, 80);

impl Client {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream: BufReader::new(stream), out: b"AMQP\x00\x00\x09\x01".to_vec() };
        client.expect((10, 10))?;
        let mut login = vec![0; 4];
        short("PLAIN", &mut login);
        long(b"\0guest\0guest", &mut login);
        short("en_US", &mut login);
        client.method(0, (10, 11), &login);
        client.expect((10, 30))?;
        // One channel, frames of 128 KiB, and no heartbeats.
        client.method(0, (10, 31), &[0, 1, 0, 2, 0, 0, 0, 0]);
        client.method(0, (10, 40), &[1, b'/', 0, 0]);
        client.expect((10, 41))?;
        client.call((20, 10), &[0], (20, 11))?;
        Ok(client)
    }

    pub(super) fn declare(&mut self, queue: &str, arguments: &[(&str, &str)]) -> io::Result<()> {
        let mut table = Vec::new();
        for (name, value) in arguments {
            short(name, &mut table);
            if let Ok(number) = value.parse::<i64>() {
                table.push(b'l');
                table.extend_from_slice(&number.to_be_bytes());
            } else {
                table.push(b'S');
                long(value.as_bytes(), &mut table);
            }
        }
        let mut body = vec![0, 0];
        short(queue, &mut body);
        body.push(2);
        long(&table, &mut body);
        self.call((50, 10), &body, (50, 11)).map(drop)
    }

    pub(super) fn bind(&mut self, queue: &str, exchange: &str, routing_key: &str) -> io::Result<()> {
        let mut body = vec![0, 0];
        [queue, exchange, routing_key].iter().for_each(|text| short(text, &mut body));
        body.extend_from_slice(&[0; 5]);
        self.call((50, 20), &body, (50, 21)).map(drop)
    }

    pub(super) fn delete(&mut self, queue: &str) -> io::Result<()> {
        let mut body = vec![0, 0];
        short(queue, &mut body);
        body.push(0);
        self.call((50, 40), &body, (50, 41)).map(drop)
    }

    /// Publishes messages, and waits until the server has confirmed all.
    pub(super) fn publish(&mut self, messages: impl IntoIterator<Item = AmqpMessage>) -> io::Result<()> {
        self.call((85, 10), &[0], (85, 11))?;
        let (mut open, mut tag) = (BTreeSet::new(), 0_u64);
        for message in messages {
            tag += 1;
            open.insert(tag);
            self.write_message(&message);
            if open.len() >= AT_ONCE {
                self.confirmed(&mut open)?;
            }
        }
        self.confirmed(&mut open)
    }

    fn confirmed(&mut self, open: &mut BTreeSet<u64>) -> io::Result<()> {
        while !open.is_empty() {
            let body = self.expect(ACK)?;
            let mut input = Input(&body);
            let (tag, is_multiple) = (input.number(8)?, input.number(1)? != 0);
            match is_multiple {
                true => *open = open.split_off(&(tag + 1)),
                false => drop(open.remove(&tag)),
            }
        }
        Ok(())
    }

    fn write_message(&mut self, message: &AmqpMessage) {
        let mut body = vec![0, 0];
        short(&message.exchange, &mut body);
        short(&message.routing_key, &mut body);
        body.push(0);
        self.method(1, (60, 40), &body);
        let (mut flags, mut values) = (0x1000_u16, Vec::new());
        if let Some(text) = &message.content_type {
            flags |= 0x8000;
            short(text, &mut values);
        }
        if !message.headers.is_empty() {
            flags |= 0x2000;
            let mut table = Vec::new();
            for (name, value) in &message.headers {
                short(name, &mut table);
                table.push(b'S');
                long(value.as_bytes(), &mut table);
            }
            long(&table, &mut values);
        }
        values.push(if message.is_persistent { 2 } else { 1 });
        if let Some(priority) = message.priority {
            flags |= 0x0800;
            values.push(priority);
        }
        if let Some(id) = &message.message_id {
            flags |= 0x0080;
            short(id, &mut values);
        }
        let mut header = vec![0, 60, 0, 0];
        header.extend_from_slice(&(message.payload.len() as u64).to_be_bytes());
        header.extend_from_slice(&flags.to_be_bytes());
        header.extend_from_slice(&values);
        self.frame(2, 1, &header);
        message.payload.as_bytes().chunks(PART).for_each(|part| self.frame(3, 1, part));
    }

    /// Returns the messages that wait in a queue, in order.
    pub(super) fn messages(&mut self, queue: &str, reading: Reading) -> io::Result<Vec<AmqpMessage>> {
        let mut body = vec![0, 0];
        short(queue, &mut body);
        body.push(u8::from(reading == Reading::Take));
        let (mut messages, mut is_empty) = (Vec::new(), false);
        while !is_empty {
            (0..AT_ONCE).for_each(|_| self.method(1, (60, 70), &body));
            for _ in 0..AT_ONCE {
                match self.next()? {
                    (GET_OK, arguments) => messages.push(self.message(&arguments)?),
                    (GET_EMPTY, _) => is_empty = true,
                    (id, arguments) => return Err(unexpected(id, &arguments)),
                }
            }
        }
        if reading == Reading::Keep && !messages.is_empty() {
            // All of them return to their places.
            self.method(1, (60, 120), &[0, 0, 0, 0, 0, 0, 0, 0, 3]);
        }
        Ok(messages)
    }

    fn message(&mut self, arguments: &[u8]) -> io::Result<AmqpMessage> {
        let mut input = Input(arguments);
        input.take(9)?;
        let mut message =
            AmqpMessage { exchange: input.short()?, routing_key: input.short()?, ..AmqpMessage::default() };
        let (_, _, header) = self.read_frame()?;
        let mut input = Input(&header);
        input.take(4)?;
        let length = usize::try_from(input.number(8)?).map_err(io::Error::other)?;
        input.properties(&mut message)?;
        let mut payload = Vec::with_capacity(length);
        while payload.len() < length {
            payload.extend(self.read_frame()?.2);
        }
        message.payload = String::from_utf8(payload).map_err(io::Error::other)?;
        Ok(message)
    }

    /// Ends the connection, once the server has taken all that was asked before.
    pub(super) fn close(mut self) -> io::Result<()> {
        let done = [&200_u16.to_be_bytes()[..], &[0; 5]].concat();
        self.call((20, 40), &done, (20, 41))?;
        self.method(0, (10, 50), &done);
        self.expect((10, 51)).map(drop)
    }

    fn call(&mut self, id: Id, arguments: &[u8], answer: Id) -> io::Result<Vec<u8>> {
        self.method(1, id, arguments);
        self.expect(answer)
    }

    /// Returns the arguments of the next method, which must be this one.
    fn expect(&mut self, wanted: Id) -> io::Result<Vec<u8>> {
        let (id, arguments) = self.next()?;
        if id == wanted { Ok(arguments) } else { Err(unexpected(id, &arguments)) }
    }

    fn next(&mut self) -> io::Result<(Id, Vec<u8>)> {
        loop {
            let (kind, _, mut body) = self.read_frame()?;
            if kind == 1 && body.len() >= 4 {
                let id = (u16::from_be_bytes([body[0], body[1]]), u16::from_be_bytes([body[2], body[3]]));
                return Ok((id, body.split_off(4)));
            }
        }
    }

    fn read_frame(&mut self) -> io::Result<(u8, u16, Vec<u8>)> {
        if !self.out.is_empty() {
            self.stream.get_mut().write_all(&self.out)?;
            self.out.clear();
        }
        let mut head = [0; 7];
        self.stream.read_exact(&mut head)?;
        let [kind, channel @ .., a, b, c, d] = head;
        let mut body = vec![0; u32::from_be_bytes([a, b, c, d]) as usize + 1];
        self.stream.read_exact(&mut body)?;
        body.pop();
        Ok((kind, u16::from_be_bytes(channel), body))
    }

    fn method(&mut self, channel: u16, (class, number): Id, arguments: &[u8]) {
        let body = [&class.to_be_bytes()[..], &number.to_be_bytes(), arguments].concat();
        self.frame(1, channel, &body);
    }

    fn frame(&mut self, kind: u8, channel: u16, body: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(&channel.to_be_bytes());
        long(body, &mut self.out);
        self.out.push(0xce);
    }
}

/// Returns the error of an answer that was not expected: that of the server, if it has ended the channel or
/// the connection.
fn unexpected(id: Id, arguments: &[u8]) -> io::Error {
    let mut input = Input(arguments);
    let text = match id {
        (10, 50) | (20, 40) => input.take(2).and_then(|_| input.short()).ok(),
        _ => None,
    };
    io::Error::other(text.unwrap_or_else(|| format!("RabbitMQ has answered {id:?}")))
}

/// Bytes that are read from the beginning.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a number of this many bytes.
    fn number(&mut self, bytes: usize) -> io::Result<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    fn short(&mut self) -> io::Result<String> {
        let length = self.number(1)? as usize;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn long(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number(4)? as usize;
        self.take(length)
    }

    fn properties(&mut self, message: &mut AmqpMessage) -> io::Result<()> {
        let flags = self.number(2)?;
        let has = |place: u32| flags & (1 << place) != 0;
        if has(15) {
            message.content_type = Some(self.short()?);
        }
        if has(14) {
            self.short()?;
        }
        if has(13) {
            let mut table = Input(self.long()?);
            while !table.0.is_empty() {
                let name = table.short()?;
                // A header of another type ends the list.
                if table.number(1)? != u64::from(b'S') {
                    break;
                }
                message.headers.push((name, String::from_utf8_lossy(table.long()?).into_owned()));
            }
        }
        message.is_persistent = has(12) && self.number(1)? == 2;
        if has(11) {
            message.priority = Some(self.number(1)? as u8);
        }
        // The ids of answers, and the expiration.
        for _ in [10, 9, 8].into_iter().filter(|place| has(*place)) {
            self.short()?;
        }
        if has(7) {
            message.message_id = Some(self.short()?);
        }
        Ok(())
    }
}

fn short(text: &str, out: &mut Vec<u8>) {
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(text.as_bytes());
}

fn long(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}
