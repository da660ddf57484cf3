//! A client's connection: its requests, one after another, and their answers.
//!
//! Each client connection has a separate connection to the upstream. Actions of a server on its connection
//! (closing it, an early answer) therefore reach the client's connection.

use super::body::{self, Bounds, End};
use super::head::{self, Answer, Framing, Request};
use super::rules::{Instead, Plan};
use super::{Entry, Shared};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::select;

/// Bytes per read.
const BLOCK: usize = 256 << 10;

/// A connection to the client or to the upstream.
struct Side {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Side {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (from, to) = stream.into_split();
        Ok(Self { from: BufReader::with_capacity(BLOCK, from), to })
    }
}

/// The next step for the connection.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

/// Serves a client until either side closes its connection.
pub(super) async fn serve(client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut client = Side::new(client)?;
    let mut upstream: Option<Side> = None;
    loop {
        // Between requests the upstream may close its connection; the client must see that.
        if let Some(upstream) = &mut upstream {
            select! {
                biased;
                _ = client.from.fill_buf() => {}
                _ = upstream.from.fill_buf() => return Ok(()),
            }
        }
        let Some(request) = Request::read(&mut client.from).await? else { return Ok(()) };
        let (plan, entry) = shared.begin(&request);
        if !plan.delay.is_zero() {
            tokio::time::sleep(plan.delay).await;
        }
        let next = match &plan.instead {
            _ if plan.hang => {
                tokio::io::copy_buf(&mut client.from, &mut tokio::io::sink()).await?;
                Next::Close
            }
            Some(instead) => refuse(&mut client, &request, instead, &plan, &entry).await?,
            None => {
                let upstream = match &mut upstream {
                    Some(upstream) => upstream,
                    none => none.insert(connect(shared.upstream).await?),
                };
                exchange(&mut client, upstream, &request, &plan, &entry).await?
            }
        };
        if next == Next::Close {
            return Ok(());
        }
    }
}

async fn connect(upstream: SocketAddr) -> io::Result<Side> {
    Side::new(TcpStream::connect(upstream).await?)
}

/// Answers without the upstream. The body is read first, as servers do that keep the connection. A body that
/// waits for `100 Continue` never arrives.
async fn refuse(
    client: &mut Side,
    request: &Request,
    instead: &Instead,
    plan: &Plan,
    entry: &Entry,
) -> io::Result<Next> {
    let bounds = Bounds { most: plan.cut_request, bytes_per_second: plan.bytes_per_second };
    if !request.waits {
        let count = |many| entry.change(|seen| seen.request_bytes += many);
        match body::pass(&mut client.from, &mut tokio::io::sink(), request.framing, bounds, count).await {
            End::Whole => {}
            _ => return Ok(Next::Close),
        }
    }
    let closes = request.waits || request.closes;
    say(&mut client.to, instead, request, closes, entry).await?;
    Ok(if closes { Next::Close } else { Next::Request })
}

/// Sends an answer of the proxy itself.
async fn say(
    to: &mut OwnedWriteHalf,
    answer: &Instead,
    request: &Request,
    closes: bool,
    entry: &Entry,
) -> io::Result<()> {
    let length = answer.body.len();
    let mut text = format!("HTTP/1.1 {} Injected\r\nContent-Length: {length}\r\n", answer.code);
    if let Some(seconds) = answer.retry_after {
        text += &format!("Retry-After: {seconds}\r\n");
    }
    if closes {
        text += "Connection: close\r\n";
    }
    text += "\r\n";
    let body = if request.method == "HEAD" { "" } else { &answer.body };
    entry.change(|seen| {
        seen.status = Some(answer.code);
        seen.response_bytes = body.len() as u64;
    });
    to.write_all((text + body).as_bytes()).await
}

/// Passes a request on, and its answer back.
async fn exchange(
    client: &mut Side,
    upstream: &mut Side,
    request: &Request,
    plan: &Plan,
    entry: &Entry,
) -> io::Result<Next> {
    upstream.to.write_all(&request.raw).await?;
    let mut back = pin!(answer(&mut upstream.from, &mut client.to, request, plan, entry));
    // The answer may come before the request is fully sent, from a server that rejects it or answers early.
    // The body is polled first, so that it counts as sent when the answer to all of it arrives.
    let sent = {
        let bounds = Bounds { most: plan.cut_request, bytes_per_second: plan.bytes_per_second };
        let count = |many| entry.change(|seen| seen.request_bytes += many);
        let there = pin!(body::pass(&mut client.from, &mut upstream.to, request.framing, bounds, count));
        select! {
            biased;
            sent = there => sent,
            // The rest of the body cannot be distinguished from another request.
            answered = &mut back => return answered.and(Ok(Next::Close)),
        }
    };
    match sent {
        End::Cut | End::Lost => Ok(Next::Close),
        End::Refused => back.await.and(Ok(Next::Close)),
        End::Whole => select! {
            biased;
            answered = back => answered,
            () = gone(&mut client.from) => Ok(Next::Close),
        },
    }
}

/// Returns when the other end has closed the connection, and not before.
async fn gone(from: &mut BufReader<OwnedReadHalf>) {
    match from.fill_buf().await {
        Ok(more) if !more.is_empty() => std::future::pending().await,
        _ => {}
    }
}

/// Passes the answer back.
async fn answer(
    from: &mut BufReader<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    request: &Request,
    plan: &Plan,
    entry: &Entry,
) -> io::Result<Next> {
    let mut answer = Answer::read(from, &request.method).await?;
    while (100..200).contains(&answer.status) {
        to.write_all(&answer.raw).await?;
        answer = Answer::read(from, &request.method).await?;
    }
    let closes = request.closes || answer.closes;
    entry.change(|seen| seen.upstream_status = Some(answer.status));
    if let Some(instead) = &plan.afterwards {
        // The request has taken effect once the whole answer is here; only then is the answer discarded.
        let end = discard(from, answer.framing).await;
        say(to, instead, request, closes, entry).await?;
        return Ok(if closes || end != End::Whole { Next::Close } else { Next::Request });
    }
    if let Some(etag) = &plan.etag {
        answer.raw = head::with(&answer.raw, "ETag", etag);
    }
    let mut rest = 0;
    let mut promises_more = false;
    if let (Some(by), Some(length)) = (plan.wrong_length, answer.length) {
        let claimed = length.saturating_add_signed(by);
        answer.raw = head::with(&answer.raw, "Content-Length", &claimed.to_string());
        promises_more = claimed > length;
        if let Framing::Exact(body) = answer.framing
            && claimed < body
        {
            answer.framing = Framing::Exact(claimed);
            rest = body - claimed;
        }
    }
    entry.change(|seen| seen.status = Some(answer.status));
    to.write_all(&answer.raw).await?;
    let bounds = Bounds { most: plan.cut_body, bytes_per_second: plan.bytes_per_second };
    let count = |many| entry.change(|seen| seen.response_bytes += many);
    let end = body::pass(from, to, answer.framing, bounds, count).await;
    let rest = discard(from, Framing::Exact(rest)).await;
    let goes_on = !closes && !promises_more && end == End::Whole && rest == End::Whole;
    Ok(if goes_on { Next::Request } else { Next::Close })
}

async fn discard(from: &mut BufReader<OwnedReadHalf>, framing: Framing) -> End {
    body::pass(from, &mut tokio::io::sink(), framing, Bounds::default(), |_| {}).await
}
