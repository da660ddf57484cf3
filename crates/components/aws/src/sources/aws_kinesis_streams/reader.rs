//! The task that asks the shards for records and sends them on.
//!
//! Several shards are asked at the same time, each by a task of its own. Their answers are sent on one after
//! the other. A shard is asked again when its last answer was sent, and not more often than Kinesis allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use http::HeaderMap;
use http::header::DATE;
use serde::Deserialize;
use serde_json::{Value, json};
use thalweg_broker::keeping::unless_stopped;
use thalweg_engine::{Checkpoint, Error, Source, SourceOutput};
use tokio::task::JoinSet;

use super::records::{Incoming, Page, Records};
use super::shards::{Changes, Listed, Place, Shards};
use super::{AwsKinesisStreamsSource, MOST_ANSWER};
use crate::api::{Api, CallError, read};
use crate::refusal::Kind;

/// How long the source waits before it looks again which shards are due.
const POLL: Duration = Duration::from_millis(100);
/// How often the shards are listed.
const LIST_EVERY: Duration = Duration::from_secs(10);
/// The time between two requests to a shard, which may be asked five times a second.
const BETWEEN: Duration = Duration::from_millis(200);
/// How long a shard is left alone that was asked too often.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);
/// The number of shards that are asked at the same time.
const AT_ONCE: usize = 4;
/// The most records of a request.
const RECORDS: usize = 10_000;
/// The size that records are thought to have before one was received.
const FIRST: usize = 256 << 10;
/// The most shards of a stream, and the most requests to list them.
const SHARDS: usize = 100_000;
const PAGES: usize = 1000;

/// Reads a stream.
pub(super) struct Kinesis {
    config: AwsKinesisStreamsSource,
    api: Arc<Api>,
    records: Records,
    fetch_bytes: usize,
    shards: Shards,
    /// True if the shards were listed once.
    has_listed: bool,
    /// About how many bytes a record has.
    average: usize,
    /// How far the slowest shard is behind, in seconds.
    lag: Arc<AtomicU64>,
}

/// The answer of a shard to a request for records.
enum Answer {
    Page(Page),
    /// It has more bytes than are read.
    TooLong,
}

/// The answer of a shard, and when it was asked.
type Asked = (Arc<str>, Instant, Result<Answer, CallError>);

impl Kinesis {
    pub(super) fn new(
        config: AwsKinesisStreamsSource,
        api: Arc<Api>,
        records: Records,
        fetch_bytes: usize,
        lag: Arc<AtomicU64>,
    ) -> Self {
        let (shards, has_listed, average) = (Shards::default(), false, FIRST);
        Self { config, api, records, fetch_bytes, shards, has_listed, average, lag }
    }

    /// Returns the body of a request for the stream.
    fn body(&self) -> Value {
        match self.config.stream.starts_with("arn:") {
            true => json!({ "StreamARN": self.config.stream }),
            false => json!({ "StreamName": self.config.stream }),
        }
    }

    /// Returns the partition of a shard.
    fn partition(&self, shard: &str) -> Arc<str> {
        format!("{}/{shard}", self.config.stream).into()
    }

    /// Lists the shards.
    async fn list(&mut self, out: &SourceOutput) -> Result<(), Error> {
        let listed = listing(&self.api, self.body()).await;
        let (listed, time) =
            listed.map_err(|error| error.error("the shards of the stream cannot be listed"))?;
        let prefix = self.partition("");
        let has_begun = self.has_listed || out.partitions().iter().any(|known| known.starts_with(&*prefix));
        let start = (!has_begun).then_some(self.config.start);
        let mut shards = std::mem::take(&mut self.shards);
        let saved = |shard: &str| out.saved(&self.partition(shard)).map(|offset| Place::read(&offset));
        let Changes { begun, gone } = shards.list(listed, start, time, saved);
        self.shards = shards;
        for (shard, place) in begun {
            self.note_place(&shard, &place, out);
        }
        for shard in gone {
            out.forget(&self.partition(&shard));
        }
        if !self.has_listed {
            self.forget_gone(out);
        }
        self.has_listed = true;
        Ok(())
    }

    /// Forgets the shards of a checkpoint that have gone since then.
    fn forget_gone(&mut self, out: &SourceOutput) {
        let prefix = self.partition("");
        for partition in out.partitions() {
            let is_gone =
                partition.strip_prefix(&*prefix).is_some_and(|shard| self.shards.get_mut(shard).is_none());
            if is_gone {
                out.forget(&partition);
            }
        }
    }

    /// Notes where a later run begins in a shard, when all before is settled.
    fn note_place(&self, shard: &str, place: &Place, out: &SourceOutput) {
        out.checkpoint(Checkpoint { partition: self.partition(shard), offset: place.offset() });
    }

    /// Asks shards that are due.
    fn ask(&mut self, asking: &mut JoinSet<Asked>) {
        let now = Instant::now();
        while asking.len() < AT_ONCE
            && let Some(id) = self.shards.due(now)
        {
            let body = self.body();
            let limit = (self.fetch_bytes / self.average.max(1)).clamp(1, RECORDS);
            let Some(shard) = self.shards.get_mut(&id) else { return };
            shard.begin_request();
            let limit = if shard.is_slow { 1 } else { limit };
            let (iterator, place) = (shard.iterator.take(), shard.place.clone());
            if let Place::Latest(time) = place {
                // If the answer is lost, what has arrived meanwhile is read by its time.
                shard.place = Place::Time(time);
            }
            let api = self.api.clone();
            asking.spawn(async move {
                let answer = ask(&api, body, &id, iterator, &place, limit).await;
                (id, now, answer)
            });
        }
    }

    /// Notes the answer of a shard, and sends its records on. Returns true if it had any.
    async fn note(&mut self, (id, asked, answer): Asked, out: &mut SourceOutput) -> Result<bool, Error> {
        let wait = self.config.poll_interval.duration();
        let Some(shard) = self.shards.get_mut(&id) else { return Ok(false) };
        // Until it has answered.
        (shard.is_asked, shard.is_at_end) = (false, false);
        let page = match answer {
            Ok(Answer::Page(page)) => page,
            Ok(Answer::TooLong) => {
                (shard.is_slow, shard.due) = (true, asked + BETWEEN);
                return Ok(false);
            }
            Err(CallError::Refused(refusal)) if refusal.code.contains("ExpiredIterator") => return Ok(false),
            Err(CallError::Refused(refusal)) if refusal.kind == Kind::Overload => {
                shard.due = Instant::now() + OVERLOAD_PAUSE;
                return Ok(false);
            }
            Err(error) => return Err(error.error("the records of a shard cannot be read")),
        };
        let is_empty = page.records.is_empty();
        let is_at_end = is_empty && page.millis_behind_latest.is_none_or(|behind| behind <= 0.0);
        let has_ended = shard.has_ended(page.next_shard_iterator.is_none(), is_at_end);
        shard.is_slow &= is_empty;
        shard.behind = page.millis_behind_latest.map_or(0, |behind| behind as u64);
        self.lag.store(self.shards.behind() / 1000, Relaxed);
        let size: usize = page.records.iter().map(Incoming::bytes).sum();
        if let Some(average) = size.checked_div(page.records.len()) {
            self.average = average;
        }
        let is_all = self.pass_on(&id, &page.records, out).await?;
        let Some(shard) = self.shards.get_mut(&id).filter(|_| is_all) else { return Ok(!is_empty) };
        shard.iterator = page.next_shard_iterator;
        shard.is_at_end = is_at_end;
        shard.due = asked + if is_at_end { wait } else { BETWEEN };
        if has_ended {
            shard.place = Place::Ended;
            self.note_place(&id, &Place::Ended, out);
            if !self.shards.is_continued(&id)
                && let Some(listed) = unless_stopped(out, self.list(out)).await
            {
                listed?;
            }
        }
        Ok(!is_empty)
    }

    /// Sends records of a shard on. Returns true if it sent all.
    async fn pass_on(
        &mut self,
        shard: &str,
        records: &[Incoming],
        out: &mut SourceOutput,
    ) -> Result<bool, Error> {
        let _received = out.claim(records.iter().map(Incoming::bytes).sum());
        let mut rest = records;
        while !rest.is_empty() && !out.is_stopping() {
            let count = self.records.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            let mut received = self.records.received(batch, shard, out).await?;
            let Some(last) = batch.last() else { break };
            let place = Place::After(last.sequence_number.clone());
            received.reading.checkpoint =
                Some(Checkpoint { partition: self.partition(shard), offset: place.offset() });
            match self.records.rejected(batch) {
                None => out.send(received).await?,
                Some(reason) => out.reject(received, &reason).await?,
            }
            if let Some(shard) = self.shards.get_mut(shard) {
                shard.place = place;
            }
            rest = after;
        }
        Ok(rest.is_empty())
    }

    /// True if the source is to end.
    fn is_done(&self, active: Instant) -> bool {
        let is_idle = self.config.end_after_idle.is_some_and(|idle| active.elapsed() >= idle.duration());
        is_idle && self.shards.are_at_end()
    }

    async fn read(&mut self, asking: &mut JoinSet<Asked>, out: &mut SourceOutput) -> Result<(), Error> {
        // The records of answers that wait for their turn.
        let _received = out.claim(self.fetch_bytes * (AT_ONCE + 1));
        let (mut active, mut listed) = (Instant::now(), None::<Instant>);
        while !out.is_stopping() {
            if listed.is_none_or(|at| at.elapsed() >= LIST_EVERY) {
                match unless_stopped(out, self.list(out)).await {
                    Some(done) => done?,
                    None => break,
                }
                listed = Some(Instant::now());
            }
            self.ask(asking);
            let answer = tokio::select! {
                biased;
                () = out.stopping() => break,
                Some(answer) = asking.join_next() => Some(answer),
                () = tokio::time::sleep(POLL) => None,
            };
            match answer {
                Some(Ok(answer)) => {
                    let has_records = self.note(answer, out).await?;
                    active = if has_records { Instant::now() } else { active };
                }
                Some(Err(error)) => return Err(Error::permanent("a request panicked").caused_by(error)),
                None => {}
            }
            if self.is_done(active) {
                break;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Source for Kinesis {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        self.shards.forget_requests();
        // Dropping it ends the requests on their way.
        let mut asking = JoinSet::new();
        self.read(&mut asking, out).await
    }
}

/// Returns the time of a server in milliseconds since 1970, which it says in whole seconds.
fn time_of(headers: &HeaderMap) -> Option<i64> {
    let time = DateTime::parse_from_rfc2822(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(time.timestamp_millis())
}

/// Returns all shards of a stream, and the time of the server: records are read by its times, and the clock
/// of this machine may be ahead. A stream has some shards: without this, an answer that lists none would let
/// the source forget where it was.
async fn listing(api: &Api, mut body: Value) -> Result<(Vec<Listed>, i64), CallError> {
    #[derive(Deserialize)]
    struct Listing {
        #[serde(rename = "Shards", default)]
        shards: Vec<Listed>,
        #[serde(rename = "NextToken", default)]
        next: Option<String>,
    }
    let (mut all, mut time) = (Vec::new(), None);
    for _ in 0..PAGES {
        let answer = api.ask("ListShards", body.to_string().into()).await?;
        let Listing { shards, next } = read(&api.request, &answer)?;
        time = time.or_else(|| time_of(&answer.headers));
        all.extend(shards);
        match next {
            Some(next) if all.len() < SHARDS => body = json!({ "NextToken": next }),
            None if !all.is_empty() => {
                return Ok((all, time.unwrap_or_else(|| Utc::now().timestamp_millis())));
            }
            _ => break,
        }
    }
    let text = format!("the list of {} has no shards, or more than {SHARDS}", api.request.server());
    Err(CallError::Failed(Error::temporary(text)))
}

/// Asks a shard for records. Without an iterator, one for the place is made.
async fn ask(
    api: &Api,
    mut body: Value,
    shard: &str,
    iterator: Option<String>,
    place: &Place,
    limit: usize,
) -> Result<Answer, CallError> {
    #[derive(Deserialize)]
    struct Begun {
        #[serde(rename = "ShardIterator")]
        iterator: String,
    }
    let iterator = match iterator {
        Some(iterator) => iterator,
        None => {
            body["ShardId"] = json!(shard);
            place.ask(&mut body);
            let Begun { iterator } = api.call("GetShardIterator", &body).await?;
            iterator
        }
    };
    let body = json!({ "ShardIterator": iterator, "Limit": limit });
    let answer = api.ask("GetRecords", body.to_string().into()).await?;
    if !answer.is_whole && answer.body.len() > MOST_ANSWER {
        return Ok(Answer::TooLong);
    }
    read(&api.request, &answer).map(Answer::Page)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_time_is_that_of_the_server() {
        let time = |text| time_of(&HeaderMap::from_iter([(DATE, HeaderValue::from_static(text))]));
        assert_eq!(time("Wed, 21 Oct 2015 07:28:00 GMT"), Some(1_445_412_480_000));
        assert_eq!(time("now"), None);
        assert_eq!(time_of(&HeaderMap::new()), None);
    }
}
