//! Passes bodies on as they arrive: not buffered, not changed, and only up to the point where a fault cuts
//! them.

use super::head::Framing;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// The result of passing a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The whole body was passed.
    Whole,
    /// The fault's limit was reached.
    Cut,
    /// The sender ended too early.
    Lost,
    /// The receiver accepts no more bytes.
    Refused,
}

/// The limits that a fault sets for a body.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Bounds {
    /// The maximum number of bytes.
    pub most: Option<u64>,
    pub bytes_per_second: Option<u64>,
}

/// Passes a body on. `count` is called with the number of bytes before they are sent, so that a receiver of
/// the bytes finds them counted.
pub(super) async fn pass(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    framing: Framing,
    bounds: Bounds,
    count: impl FnMut(u64),
) -> End {
    let mut passing = Passing { from, to, bounds, count, passed: 0, begun: Instant::now() };
    let ended = match framing {
        Framing::Exact(length) => passing.bytes(length).await,
        Framing::Chunked => passing.chunks().await,
        Framing::ToTheEnd => match passing.bytes(u64::MAX).await {
            Err(End::Lost) => Ok(()),
            ended => ended,
        },
    };
    ended.err().unwrap_or(End::Whole)
}

struct Passing<'a, R, W, C> {
    from: &'a mut R,
    to: &'a mut W,
    bounds: Bounds,
    count: C,
    passed: u64,
    begun: Instant,
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin, C: FnMut(u64)> Passing<'_, R, W, C> {
    async fn bytes(&mut self, length: u64) -> Result<(), End> {
        let mut left = length;
        while left > 0 {
            let room = self.room().await?;
            let came = lost(self.from.fill_buf().await)?;
            if came.is_empty() {
                return Err(End::Lost);
            }
            let many = room.min(left).min(came.len() as u64);
            (self.count)(many);
            refused(self.to.write_all(&came[..many as usize]).await)?;
            self.from.consume(many as usize);
            self.passed += many;
            left -= many;
        }
        Ok(())
    }

    async fn chunks(&mut self) -> Result<(), End> {
        loop {
            let line = self.line().await?;
            let digits = line.split(|byte| !byte.is_ascii_hexdigit()).next().unwrap_or_default();
            let digits = lost(str::from_utf8(digits).map_err(io::Error::other))?;
            let length = lost(u64::from_str_radix(digits, 16).map_err(io::Error::other))?;
            if length == 0 {
                // Trailers, up to an empty line.
                while self.line().await? != b"\r\n" {}
                return Ok(());
            }
            self.bytes(length).await?;
            self.line().await?;
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, End> {
        let mut line = Vec::new();
        lost((&mut *self.from).take(64 << 10).read_until(b'\n', &mut line).await)?;
        if !line.ends_with(b"\n") {
            return Err(End::Lost);
        }
        refused(self.to.write_all(&line).await)?;
        Ok(line)
    }

    /// Returns the number of bytes that may pass now; waits if the rate requires it.
    async fn room(&mut self) -> Result<u64, End> {
        let most = self.bounds.most.map_or(u64::MAX, |most| most - self.passed);
        if most == 0 {
            return Err(End::Cut);
        }
        let Some(rate) = self.bounds.bytes_per_second else { return Ok(most) };
        // Twenty steps a second, but at least one byte per step.
        let step = (rate / 20).max(1);
        let due = Duration::from_secs_f64((self.passed + step) as f64 / rate as f64);
        tokio::time::sleep_until(self.begun + due).await;
        Ok(most.min(step))
    }
}

fn lost<T>(result: io::Result<T>) -> Result<T, End> {
    result.map_err(|_| End::Lost)
}

fn refused<T>(result: io::Result<T>) -> Result<T, End> {
    result.map_err(|_| End::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(from: &str, framing: Framing, most: Option<u64>) -> (End, String, u64) {
        let (mut to, mut counted) = (Vec::new(), 0);
        let bounds = Bounds { most, bytes_per_second: None };
        let end = pass(&mut from.as_bytes(), &mut to, framing, bounds, |many| counted += many).await;
        (end, String::from_utf8(to).unwrap(), counted)
    }

    #[tokio::test]
    async fn a_body_ends_where_its_framing_says() {
        assert_eq!(passed("hello!", Framing::Exact(5), None).await, (End::Whole, "hello".into(), 5));
        assert_eq!(passed("hell", Framing::Exact(5), None).await, (End::Lost, "hell".into(), 4));
        assert_eq!(passed("hell", Framing::ToTheEnd, None).await, (End::Whole, "hell".into(), 4));
        let chunked = "5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n";
        let more = format!("{chunked}GET /");
        assert_eq!(passed(&more, Framing::Chunked, None).await, (End::Whole, chunked.into(), 6));
        assert_eq!(passed("5\r\nhel", Framing::Chunked, None).await.0, End::Lost);
    }

    #[tokio::test]
    async fn a_limit_cuts_only_what_is_longer() {
        assert_eq!(passed("hello", Framing::Exact(5), Some(3)).await, (End::Cut, "hel".into(), 3));
        assert_eq!(passed("hello", Framing::Exact(5), Some(5)).await, (End::Whole, "hello".into(), 5));
        assert_eq!(passed("hello", Framing::Exact(5), Some(0)).await, (End::Cut, "".into(), 0));
    }

    /// With a clock that moves only when all tasks wait for it.
    #[tokio::test(start_paused = true)]
    async fn a_slow_body_comes_piece_by_piece() {
        let within = async |millis| {
            let (mut from, mut to) = (&[7; 300][..], Vec::new());
            let bounds = Bounds { most: None, bytes_per_second: Some(100) };
            let passing = pass(&mut from, &mut to, Framing::Exact(300), bounds, drop);
            tokio::time::timeout(Duration::from_millis(millis), passing).await.ok()
        };
        assert_eq!(within(2_900).await, None);
        assert_eq!(within(3_100).await, Some(End::Whole));
    }
}
