//! A target: a program that exposes metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use thalweg_codec::exposition::{Form, Sample, sample};
use thalweg_engine::{Error, SourceOutput};
use thalweg_redact::without_secrets;
use tokio::time::MissedTickBehavior;

use super::Labels;
use super::rows::{Bad, Rows};
use crate::requests::{Answer, Failure, Request};

/// The size that is expected of a first answer, in bytes.
const USUAL: usize = 64 << 10;

/// The shortest time between two scrapes.
const LEAST: Duration = Duration::from_millis(1);

/// The longest line that is read, in bytes: its labels are held several times while they become fields.
const LONGEST: usize = 1 << 20;

/// A target, and what is known of it.
pub(super) struct Target {
    request: Request,
    labels: Labels,
    /// The URL without secrets: `meta.path` of the messages.
    path: Arc<str>,
    /// The size of the last answer.
    expected: usize,
    /// True if the last scrape failed.
    is_down: bool,
}

impl Target {
    /// `labels` are those of the configuration.
    pub(super) fn new(request: Request, mut labels: BTreeMap<String, String>) -> Self {
        let (host, port) = (request.url.host_str().unwrap_or_default(), request.url.port_or_known_default());
        let instance = format!("{host}:{}", port.unwrap_or_default());
        labels.entry("instance".to_owned()).or_insert(instance);
        let path = without_secrets(request.url.as_str()).into();
        Self { request, labels: Arc::new(labels), path, expected: USUAL, is_down: false }
    }

    /// Scrapes the target once, or at its times until the run is stopped.
    pub(super) async fn follow(
        mut self,
        every: Option<Duration>,
        mut out: SourceOutput,
    ) -> Result<(), Error> {
        let Some(every) = every else {
            // A target that is down is tried again, so it is no sample.
            let at = self.ready(&out).await;
            self.scrape(at, &mut out).await?.map_err(Failure::error)?;
            return self.send_up(true, at, &mut out).await;
        };
        let mut times = tokio::time::interval(every.max(LEAST));
        times.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                () = out.stopping() => return Ok(()),
                _ = times.tick() => {}
            }
            let at = self.ready(&out).await;
            let scraped = self.scrape(at, &mut out).await?;
            if !out.is_stopping() {
                self.send_up(scraped.is_ok(), at, &mut out).await?;
                self.report(scraped.err(), &out);
            }
        }
    }

    /// Logs that the target failed, or succeeds again.
    fn report(&mut self, failure: Option<Failure>, out: &SourceOutput) {
        let was_down = std::mem::replace(&mut self.is_down, failure.is_some());
        match failure {
            Some(failure) if !was_down => {
                tracing::warn!("`{}`: a scrape failed: {}", out.name(), failure.text());
            }
            None if was_down => tracing::info!("`{}`: `{}` is scraped again", out.name(), self.path),
            _ => {}
        }
    }

    /// Waits for capacity. Returns the time of the scrape that may begin now.
    async fn ready(&self, out: &SourceOutput) -> i64 {
        // The answer is claimed later: while it is held, the source must be able to send.
        drop(out.reserve(self.expected).await);
        Utc::now().timestamp_millis()
    }

    /// Scrapes the target, and sends its samples. Returns why it failed, if so.
    ///
    /// # Errors
    /// If nothing can be sent any more.
    async fn scrape(&mut self, at: i64, out: &mut SourceOutput) -> Result<Result<(), Failure>, Error> {
        let asked = self.request.client.get(self.request.url.clone());
        let answer = tokio::select! {
            answer = self.request.send_built(asked) => answer,
            () = out.stopping() => return Ok(Err(Failure::temporary("the run is stopping"))),
        };
        match answer.and_then(|answer| self.checked(answer)) {
            Ok((form, body)) => {
                self.expected = body.len().max(1);
                self.send(&body, form, at, out).await?;
                Ok(Ok(()))
            }
            Err(failure) => Ok(Err(failure)),
        }
    }

    /// Sends the sample that says whether the target could be scraped.
    async fn send_up(&self, is_up: bool, at: i64, out: &mut SourceOutput) -> Result<(), Error> {
        let value = if is_up { 1.0 } else { 0.0 };
        let up = Sample { name: "up".into(), labels: Vec::new(), value, timestamp_ms: None };
        let mut rows = Rows::new(&self.labels, at);
        rows.push(if is_up { b"up 1" } else { b"up 0" }, &up);
        rows.send(&self.path, out).await
    }

    /// Returns the form and the body of an answer with metrics.
    fn checked(&self, answer: Answer) -> Result<(Form, Vec<u8>), Failure> {
        if answer.status != StatusCode::OK {
            return Err(self.request.failure(&answer));
        }
        let (server, most) = (self.request.server(), self.request.most_answer);
        if answer.body.len() > most {
            let text = format!("the answer of {server} has more than {most} bytes (`max_body_bytes`)");
            return Err(Failure::temporary(text));
        }
        let content_type = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let form = Form::of_content_type(content_type.unwrap_or_default());
        match answer.is_whole && form.is_whole(&answer.body) {
            true => Ok((form, answer.body)),
            false => Err(Failure::temporary(format!("the answer of {server} is cut off"))),
        }
    }

    /// Sends the samples of an answer, and what is none to `errors`.
    async fn send(&self, body: &[u8], form: Form, at: i64, out: &mut SourceOutput) -> Result<(), Error> {
        let _body = out.claim(body.len());
        let (mut rows, mut bad) = (Rows::new(&self.labels, at), Bad::default());
        for line in body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            let read = match line.len() > LONGEST && !line.starts_with(b"#") {
                true => Err(format!("has more than {LONGEST} bytes")),
                false => sample(line, form),
            };
            match read {
                Ok(Some(sample)) => rows.push(line, &sample),
                Ok(None) => {}
                Err(reason) => bad.push(line, reason),
            }
            if rows.bytes() >= out.batch_bytes() {
                std::mem::replace(&mut rows, Rows::new(&self.labels, at)).send(&self.path, out).await?;
            }
            if bad.bytes() >= out.batch_bytes() {
                std::mem::take(&mut bad).send(&self.path, out).await?;
            }
        }
        rows.send(&self.path, out).await?;
        bad.send(&self.path, out).await
    }
}
