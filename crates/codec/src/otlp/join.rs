//! Joins parts into a request: records of one resource, scope and metric stand together.

use std::collections::HashMap;

use super::Signal;
use super::schema::{GROUPS, INNER, POINTS};
use super::write::{begin, bytes_field, end};

/// Returns the signal of a part that [`Bound::write`](super::Bound::write) wrote.
pub fn signal_of(part: &[u8]) -> Option<Signal> {
    let first = usize::from(*part.first()?);
    Signal::ALL.get(first).copied()
}

/// Returns the request with these parts, all of one signal. Groups and records are in the order of the parts.
pub fn request<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut root = Group::default();
    let mut length = 0;
    for part in parts {
        length += part.len();
        root.add(part);
    }
    let mut out = Vec::with_capacity(length);
    for resource in &root.groups {
        let start = begin(GROUPS, &mut out);
        let [head, schema_url] = slices(resource.key);
        out.extend_from_slice(head);
        resource.groups.iter().for_each(|scope| scope.write_scope(&mut out));
        out.extend_from_slice(schema_url);
        end(start, &mut out);
    }
    out
}

/// The records of one resource, scope or metric.
#[derive(Default)]
struct Group<'a> {
    /// The slices of the parts that it was made of.
    key: &'a [u8],
    /// Of a metric: the number of the field with its data.
    data: u32,
    places: HashMap<(u8, &'a [u8]), usize>,
    groups: Vec<Group<'a>>,
    records: Vec<&'a [u8]>,
}

impl<'a> Group<'a> {
    fn add(&mut self, part: &'a [u8]) {
        let Some((&[_, data], rest)) = part.split_first_chunk::<2>() else { return };
        let (resource, rest) = taken::<2>(rest);
        let (scope, rest) = taken::<2>(rest);
        let mut group = self.group(0, resource).group(0, scope);
        let mut rest = rest;
        if data > 0 {
            let (metric, behind) = taken::<3>(rest);
            group = group.group(data, metric);
            rest = behind;
        }
        let [record] = slices(rest);
        group.records.push(record);
    }

    /// Returns the group below this one that is made of these slices.
    fn group(&mut self, data: u8, key: &'a [u8]) -> &mut Self {
        let next = self.groups.len();
        let place = *self.places.entry((data, key)).or_insert(next);
        if place == next {
            self.groups.push(Group { key, data: data.into(), ..Group::default() });
        }
        &mut self.groups[place]
    }

    fn write_scope(&self, out: &mut Vec<u8>) {
        let start = begin(INNER, out);
        let [head, schema_url] = slices(self.key);
        out.extend_from_slice(head);
        self.records.iter().for_each(|record| bytes_field(INNER, record, out));
        self.groups.iter().for_each(|metric| metric.write_metric(out));
        out.extend_from_slice(schema_url);
        end(start, out);
    }

    fn write_metric(&self, out: &mut Vec<u8>) {
        let start = begin(INNER, out);
        let [head, tail, behind_points] = slices(self.key);
        out.extend_from_slice(head);
        let data = begin(self.data, out);
        self.records.iter().for_each(|point| bytes_field(POINTS, point, out));
        out.extend_from_slice(behind_points);
        end(data, out);
        out.extend_from_slice(tail);
        end(start, out);
    }
}

/// Returns the bytes of the first slices, with their lengths, and the rest.
fn taken<const COUNT: usize>(bytes: &[u8]) -> (&[u8], &[u8]) {
    let length: usize = slices::<COUNT>(bytes).iter().map(|slice| slice.len() + 4).sum();
    bytes.split_at_checked(length).unwrap_or((bytes, &[]))
}

/// Returns the first slices. One that is missing is empty.
fn slices<const COUNT: usize>(mut bytes: &[u8]) -> [&[u8]; COUNT] {
    [(); COUNT].map(|()| {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return &[][..] };
        let length = u32::from_le_bytes(*length) as usize;
        let (slice, rest) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        bytes = rest;
        slice
    })
}
