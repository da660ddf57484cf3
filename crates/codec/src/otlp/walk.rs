//! Walks a request: resources, scopes, metrics, records.

use std::ops::Range;

use super::plan::{Metrics, Plan};
use super::schema::{GROUPS, HEAD, INNER, METRIC_NAME, POINTS, SCHEMA_URL, SETTINGS};
use super::to_json::{bits, misfit};
use super::write::varint_field;
use crate::protobuf::fault::Fault;
use crate::protobuf::wire::{Raw, Reader};

/// Returns the place of the last field of this number within a message, which has these bytes of the request.
pub(super) fn find(bytes: &[u8], within: Range<usize>, number: u32) -> Result<Option<Range<usize>>, Fault> {
    let (start, mut last) = (within.start, None);
    let mut reader = Reader::new(bytes.get(within).unwrap_or_default());
    while let Some((found, raw)) = reader.field()? {
        if found == number {
            last = Some(shifted(raw, start)?);
        }
    }
    Ok(last)
}

/// Returns the place of a value in the request, if it is within a message that begins at `start`.
fn shifted(raw: Raw, start: usize) -> Result<Range<usize>, Fault> {
    match raw {
        Raw::Bytes { start: from, end } => Ok(start + from as usize..start + end as usize),
        raw => Err(misfit(raw)),
    }
}

/// A part of a message that is not read yet.
#[derive(Debug, Default)]
struct Rest {
    at: usize,
    end: usize,
}

impl Rest {
    /// Returns the place of the next field of this number.
    fn next(&mut self, bytes: &[u8], number: u32) -> Result<Option<Range<usize>>, Fault> {
        let mut reader = Reader::new(bytes.get(self.at..self.end).unwrap_or_default());
        while let Some((found, raw)) = reader.field()? {
            if found == number {
                let place = shifted(raw, self.at)?;
                self.at = place.end;
                return Ok(Some(place));
            }
        }
        self.at = self.end;
        Ok(None)
    }
}

/// Whether columns have the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Those of no batch have them.
    Never,
    /// Those of batches before this one have them.
    Before,
    /// Those of this batch have them.
    Now,
}

/// A resource, a scope or a metric with what is below it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) whole: Range<usize>,
    /// The place of what describes it: of a metric, that of its data.
    pub(super) head: Range<usize>,
    pub(super) schema_url: Range<usize>,
    rest: Rest,
    pub(super) written: Written,
}

impl Group {
    /// Enters the group at this place.
    fn of(bytes: &[u8], whole: Range<usize>) -> Result<Self, Fault> {
        Ok(Self {
            head: find(bytes, whole.clone(), HEAD)?.unwrap_or_default(),
            schema_url: find(bytes, whole.clone(), SCHEMA_URL)?.unwrap_or_default(),
            rest: Rest { at: whole.start, end: whole.end },
            whole,
            written: Written::Never,
        })
    }
}

/// A metric, with the number of its kind in the plan.
#[derive(Debug)]
pub(super) struct MetricGroup {
    pub(super) group: Group,
    /// The place of the name, which is the payload of each point.
    pub(super) name: Range<usize>,
    pub(super) kind: usize,
    /// The fields of the data without its points. There may be millions of points, and the fields are read
    /// again for each batch.
    pub(super) settings: Vec<u8>,
}

/// Where the reader is in the request.
#[derive(Debug)]
pub(super) struct Walk {
    request: Rest,
    pub(super) resource: Option<Group>,
    pub(super) scope: Option<Group>,
    pub(super) metric: Option<MetricGroup>,
    /// The number of records so far.
    pub(super) rows: usize,
    pub(super) is_done: bool,
}

impl Walk {
    pub(super) fn new(length: usize) -> Self {
        let request = Rest { at: 0, end: length };
        Self { request, resource: None, scope: None, metric: None, rows: 0, is_done: false }
    }

    /// Marks all groups.
    pub(super) fn mark(&mut self, written: Written) {
        let metric = self.metric.as_mut().map(|metric| &mut metric.group);
        for group in [self.resource.as_mut(), self.scope.as_mut(), metric].into_iter().flatten() {
            group.written = written;
        }
    }

    /// Returns the place of the next record.
    pub(super) fn next(&mut self, plan: &Plan, bytes: &[u8]) -> Result<Option<Range<usize>>, Fault> {
        loop {
            if let Some(MetricGroup { group, .. }) = &mut self.metric {
                match group.rest.next(bytes, POINTS)? {
                    Some(point) => return Ok(Some(point)),
                    None => self.metric = None,
                }
            } else if let Some(scope) = &mut self.scope {
                match (scope.rest.next(bytes, INNER)?, &plan.metrics) {
                    (Some(metric), Some(metrics)) => self.metric = entered(metrics, bytes, metric)?,
                    (Some(record), None) => return Ok(Some(record)),
                    (None, _) => self.scope = None,
                }
            } else if let Some(resource) = &mut self.resource {
                match resource.rest.next(bytes, INNER)? {
                    Some(scope) => self.scope = Some(Group::of(bytes, scope)?),
                    None => self.resource = None,
                }
            } else {
                match self.request.next(bytes, GROUPS)? {
                    Some(resource) => self.resource = Some(Group::of(bytes, resource)?),
                    None => return Ok(None),
                }
            }
        }
    }
}

/// Enters a metric. None if it has no data.
fn entered(metrics: &Metrics, bytes: &[u8], whole: Range<usize>) -> Result<Option<MetricGroup>, Fault> {
    let (mut last, mut name) = (None, 0..0);
    let mut reader = Reader::new(bytes.get(whole.clone()).unwrap_or_default());
    while let Some((number, raw)) = reader.field()? {
        if number == METRIC_NAME && matches!(raw, Raw::Bytes { .. }) {
            name = shifted(raw, whole.start)?;
        } else if let Some(kind) = metrics.kinds.iter().position(|kind| kind.number == number) {
            last = Some((kind, shifted(raw, whole.start)?));
        }
    }
    let Some((kind, data)) = last else { return Ok(None) };
    let settings = settings(bytes, data.clone())?;
    let rest = Rest { at: data.start, end: data.end };
    let group = Group { whole, head: data, schema_url: 0..0, rest, written: Written::Never };
    Ok(Some(MetricGroup { group, name, kind, settings }))
}

/// Returns the last fields of the data of a metric that are not points.
fn settings(bytes: &[u8], data: Range<usize>) -> Result<Vec<u8>, Fault> {
    let mut last = [None; SETTINGS.len()];
    let mut reader = Reader::new(bytes.get(data).unwrap_or_default());
    while let Some((number, raw)) = reader.field()? {
        if let Some(at) = SETTINGS.iter().position(|known| *known == number) {
            last[at] = Some(bits(raw)?);
        }
    }
    let mut settings = Vec::new();
    for (number, value) in SETTINGS.into_iter().zip(last) {
        if let Some(value) = value {
            varint_field(number, value, &mut settings);
        }
    }
    Ok(settings)
}
