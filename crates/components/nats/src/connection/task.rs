//! The task that reads and writes a connection, and opens another one when it breaks.
//!
//! It retries for ever, with growing pauses. Only a server that does not speak the protocol ends the client,
//! and servers that refuse the user again and again: the component then fails with the reason, and the engine
//! starts it again. Otherwise a connection would be opened over and over, and users would not learn of it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_net::net::Stream;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::servers::{Failure, Opened, Servers};
use super::shared::Shared;
use crate::wire::{Decoder, Malformed};

/// The size of a read.
const READ: usize = 32 << 10;
/// How long the server may take no byte of what is written.
const WRITE: Duration = Duration::from_secs(30);
/// How often the server is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How long what is to be written may take at the end of a client.
const CLOSE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// A connection that lasted less is followed by a pause. It does not grow with each one in a row: over a bad
/// network, messages would hardly move.
const SHORT: Duration = Duration::from_secs(1);
/// The number of short connections in a row after which users hear of it.
const TOLD_AFTER: usize = 6;
/// The number of rounds in which all servers refuse the user, after which the client ends. A server that
/// starts may not know its users yet.
const REFUSALS: usize = 6;
/// How long there may be no connection before users hear of it.
const QUIET: Duration = Duration::from_secs(10);
/// A larger buffer is not kept.
const KEPT: usize = 1 << 20;

/// The end of a connection.
enum End {
    /// The client was dropped.
    Closed,
    /// The connection broke.
    Broken(String),
    /// The server does not speak the protocol.
    Malformed(Malformed),
}

/// Ends the client with the task, also if it panics: nothing then waits for it.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end("the client has ended");
    }
}

/// Keeps a connection, which is that of `shared`, until the client is dropped.
pub(super) async fn keep(shared: Arc<Shared>, servers: Servers, mut opened: Opened) {
    let shared = Ending(shared);
    let shared = &shared.0;
    let mut short = 0;
    loop {
        let begun = Instant::now();
        match run(shared, opened).await {
            End::Closed => return,
            End::Broken(reason) => {
                tracing::debug!("the connection to a server of NATS broke: {reason}");
                shared.disconnected(&reason);
            }
            End::Malformed(malformed) => return shared.end(&malformed.to_string()),
        }
        short = short_in_a_row(short, begun.elapsed());
        if short == TOLD_AFTER {
            let reason = shared.explanation().unwrap_or_default();
            tracing::warn!("each connection to a server of NATS breaks soon, which is retried: {reason}");
        }
        opened = tokio::select! {
            () = shared.closing() => return,
            reopened = reopen(shared, &servers, short > 0) => match reopened {
                Ok(reopened) => reopened,
                Err(reason) => return shared.end(&reason),
            },
        };
        shared.connected(&opened.info);
    }
}

/// Returns the number of short connections in a row, with one that lasted this long.
fn short_in_a_row(before: usize, lasted: Duration) -> usize {
    if lasted < SHORT { before.saturating_add(1) } else { 0 }
}

/// Opens a connection, however long that takes.
///
/// # Errors
/// If a server does not speak the protocol, or all servers refuse the user. The text is the reason.
async fn reopen(shared: &Shared, servers: &Servers, was_short: bool) -> Result<Opened, String> {
    let mut attempt = usize::from(was_short);
    let (begun, mut refusals, mut is_told) = (Instant::now(), 0, false);
    loop {
        let mut refused = None;
        let mut are_all_refusing = true;
        for server in servers.to_try(&shared.learned()) {
            attempt = attempt.saturating_add(1);
            tokio::time::sleep(pause(attempt)).await;
            let failure = match servers.open(&server).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failure,
            };
            are_all_refusing &= matches!(failure, Failure::Refused(_));
            let reason = match failure {
                Failure::Malformed(malformed) => return Err(malformed.to_string()),
                Failure::Refused(reason) => refused.insert(reason).clone(),
                Failure::Later(reason) => reason,
                Failure::Never(error) => error.full(),
            };
            shared.disconnected(&reason);
            if !is_told && begun.elapsed() >= QUIET {
                is_told = true;
                tracing::warn!("there is no connection to a server of NATS, which is retried: {reason}");
            }
        }
        refusals = if are_all_refusing { refusals + 1 } else { 0 };
        if let Some(reason) = refused.filter(|_| refusals >= REFUSALS) {
            return Err(format!("the servers refuse the user: {reason}"));
        }
    }
}

/// Reads and writes a connection until it ends.
async fn run(shared: &Shared, opened: Opened) -> End {
    let (read, write) = tokio::io::split(opened.stream);
    tokio::select! {
        end = reading(shared, read, opened.decoder) => end,
        end = writing(shared, write) => end,
        end = asking(shared) => end,
        end = closing(shared) => end,
    }
}

async fn reading(shared: &Shared, mut stream: ReadHalf<Stream>, mut decoder: Decoder) -> End {
    loop {
        loop {
            match decoder.decode() {
                Ok(Some(operation)) => shared.take(operation),
                Ok(None) => break,
                Err(malformed) => return End::Malformed(malformed),
            }
        }
        // Subscribers take messages between two reads, each of which brings only so many.
        tokio::task::yield_now().await;
        let buffer = decoder.buffer();
        buffer.reserve(READ);
        match (&mut stream).take(READ as u64).read_buf(buffer).await {
            Ok(0) => return End::Broken("the server closed the connection".to_owned()),
            Ok(_) => shared.heard(),
            Err(error) => return End::Broken(error.to_string()),
        }
    }
}

async fn writing(shared: &Shared, mut stream: WriteHalf<Stream>) -> End {
    let mut bytes = Vec::new();
    loop {
        shared.take_output(&mut bytes);
        if bytes.is_empty() {
            if shared.is_closing() {
                return End::Closed;
            }
            shared.output().await;
            continue;
        }
        if let Err(error) = write_all(&mut stream, &bytes).await {
            return End::Broken(error.to_string());
        }
        bytes.clear();
        if bytes.capacity() > KEPT {
            bytes = Vec::new();
        }
    }
}

/// Writes all bytes, however long that takes while the server takes some of them: a large message needs
/// longer over a slow line, and would be sent again and again if the connection were given up.
///
/// # Errors
/// If the connection breaks, or the server takes nothing.
async fn write_all(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    let stuck = |_| io::Error::new(io::ErrorKind::TimedOut, "the server takes nothing any more");
    while !bytes.is_empty() {
        match tokio::time::timeout(WRITE, stream.write(bytes)).await.map_err(stuck)?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = bytes.get(written..).unwrap_or_default(),
        }
    }
    tokio::time::timeout(WRITE, stream.flush()).await.map_err(stuck)?
}

/// Asks the server now and then whether it is there.
async fn asking(shared: &Shared) -> End {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        if !shared.ask() {
            return End::Broken("the server does not answer any more".to_owned());
        }
    }
}

/// Ends the connection some time after the client was dropped, whatever is still to be written.
async fn closing(shared: &Shared) -> End {
    shared.closing().await;
    tokio::time::sleep(CLOSE).await;
    End::Closed
}

/// Returns the pause before an attempt to connect. Pauses differ, so that clients do not come all at once
/// when a server is back.
fn pause(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(2)).unwrap_or(u32::MAX).min(10);
    match attempt {
        0 | 1 => Duration::ZERO,
        _ => (Duration::from_millis(50) * 2_u32.pow(doublings))
            .min(LONGEST_PAUSE)
            .mul_f64(0.5 + fastrand::f64() / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::NotSent;
    use crate::wire::{Info, Publication};

    #[tokio::test]
    async fn a_task_that_panics_ends_the_client() {
        let shared = Arc::<Shared>::default();
        let ending = Ending(shared.clone());
        let panicked = tokio::spawn(async move {
            let _ending = ending;
            panic!("as a test");
        });
        let message = Publication { subject: "s", reply: None, headers: &[], payload: b"" };
        let sent = shared.publish(&message, None).await;
        assert_eq!(sent, Err(NotSent::Lost("the client has ended".to_owned())));
        assert!(panicked.await.unwrap_err().is_panic());
    }

    #[test]
    fn a_server_is_lost_when_it_does_not_answer_and_not_while_a_question_would_wait() {
        let shared = Shared::default();
        shared.connected(&Info::default());
        let (mut bytes, mut none) = (Vec::new(), Vec::new());
        assert!(shared.ask());
        shared.take_output(&mut bytes);
        assert_eq!(bytes, b"PING\r\n");
        // As long as it takes to write them.
        assert!((0..10).all(|_| shared.ask()));
        shared.take_output(&mut none);
        assert!(none.is_empty() && shared.ask() && !shared.ask());
        shared.heard();
        assert!(shared.ask());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_bytes_slowly_gets_all_and_one_that_takes_none_is_lost() {
        let bytes = vec![b'x'; 100];
        let (mut client, mut server) = tokio::io::duplex(10);
        let take = async {
            let mut taken = [0; 10];
            for _ in 0..10 {
                // Together longer than a write may take.
                tokio::time::sleep(WRITE / 3).await;
                server.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(write_all(&mut client, &bytes), take);
        written.unwrap();
        let error = write_all(&mut client, &bytes).await.unwrap_err();
        assert_eq!(error.to_string(), "the server takes nothing any more");
    }

    #[test]
    fn short_connections_in_a_row_are_counted_until_one_lasts() {
        let short = (0..20).fold(0, |short, _| short_in_a_row(short, SHORT / 2));
        assert_eq!((short, short_in_a_row(short, SHORT)), (20, 0));
    }

    #[test]
    fn pauses_grow_and_differ_up_to_a_limit() {
        assert_eq!((pause(0), pause(1)), (Duration::ZERO, Duration::ZERO));
        for (attempt, most) in [(2, 50), (3, 100), (5, 400), (8, 3200), (9, 4000), (usize::MAX, 4000)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let pause = pause(attempt);
                assert!(pause <= most && pause >= most / 2, "{attempt}: {pause:?}");
            }
        }
    }
}
