//! Makes batches of syslog messages.

use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use thalweg_codec::syslog::{Parsed, SyslogColumns, SyslogOptions};
use thalweg_engine::{Reading, Received};
use thalweg_record::ViewBuilder;

use super::{Others, Payload, SyslogSource};
use crate::net::{Cut, Format, Rejected};

/// Parses messages and builds their fields.
#[derive(Debug, Clone)]
pub(super) struct Parser {
    options: Arc<SyslogOptions>,
    payload: Payload,
    fields: bool,
    others: Others,
}

/// Returns the host of a sender's address, which may have a scheme and a port.
fn host(peer: &str) -> &str {
    let address = peer.rsplit_once("://").map_or(peer, |(_, address)| address);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

impl Parser {
    pub(super) fn new(config: &SyslogSource) -> Self {
        Self {
            options: Arc::new(config.options.clone()),
            payload: config.payload,
            fields: config.add_fields,
            others: config.others,
        }
    }

    /// Parses a message that arrived at `now`. Another line counts as a message of its sender, if `others`
    /// accepts it.
    fn parsed<'a>(
        &self,
        raw: &'a [u8],
        peer: &'a str,
        now: DateTime<Utc>,
    ) -> Result<Parsed<'a>, &'static str> {
        match (self.options.parse(raw, now), self.others) {
            (Err(_), Others::Accept) => Ok(Parsed::line(raw, host(peer), now)),
            (parsed, _) => parsed,
        }
    }
}

impl Format for Parser {
    fn most_rows(&self) -> usize {
        self.options.most_rows()
    }

    fn received(
        &mut self,
        cut: &Cut,
        rows: Range<usize>,
        peer: &Arc<str>,
        rejected: &mut Vec<Rejected>,
    ) -> Option<Received> {
        let messages = cut.messages.get(rows)?;
        let buffers = std::slice::from_ref(&cut.buffer);
        let mut payload = ViewBuilder::over(buffers, messages.len());
        let mut columns = SyslogColumns::over(buffers, messages.len(), &self.options);
        let now = Utc::now();
        for range in messages {
            let raw = cut.buffer.get(range.clone()).unwrap_or_default();
            match self.parsed(raw, peer, now) {
                Ok(parsed) => {
                    match self.payload {
                        Payload::Raw => payload.push(raw),
                        Payload::Message => payload.push(parsed.text),
                    }
                    if self.fields {
                        columns.push(&parsed);
                    }
                }
                Err(reason) => rejected.push((range.clone(), reason.into())),
            }
        }
        if payload.is_empty() {
            return None;
        }
        let reading = Reading {
            payload: payload.finish(),
            path: Some(peer.clone()),
            positions: None,
            checkpoint: None,
        };
        let fields = if self.fields { columns.finish(&self.options).ok() } else { None };
        Some(Received { reading, fields })
    }
}
