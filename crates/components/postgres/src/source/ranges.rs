//! The ranges of a table that are read at the same time.
//!
//! The ranges divide the keys between the smallest and the largest one evenly, as they are when a first run
//! begins; the last has no end, so later rows are read too. A checkpoint has the ends, because the positions
//! of the ranges mean nothing with others.

use std::sync::Arc;

use thalweg_engine::{Checkpoint, Error, SourceOutput};

use super::PostgresSource;
use super::select::{Place, Select};
use crate::connection::Connection;
use crate::failure::Moment;
use crate::sql::identifier;

/// The partition whose offset is the ends of the ranges, before the order of reading.
const ENDS: &str = "ranges of";

/// A range of keys.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) number: usize,
    /// The name of its partition. None if its place is not known, because there is no key.
    pub(super) partition: Option<Arc<str>>,
    pub(super) path: Arc<str>,
    /// The last key, if there is an end.
    pub(super) until: Option<i64>,
    /// The last row that was sent.
    pub(super) after: Option<Place>,
    /// The number of rows that were sent since the last complete reading.
    pub(super) sent: u64,
}

/// Returns the ranges to read, each from where a former run got to.
///
/// # Errors
/// If the server does not tell the keys.
pub(super) async fn ranges(
    config: &PostgresSource,
    select: &Select,
    connection: &Connection,
    out: &SourceOutput,
) -> Result<Vec<Range>, Error> {
    let order = select.order();
    let partition = |number: usize| Arc::<str>::from(format!("{order}/{number}"));
    let of_ends: Arc<str> = format!("{ENDS} {order}").into();
    let ends = match out.saved(&of_ends).and_then(|ends| serde_json::from_value::<Vec<i64>>(ends).ok()) {
        Some(ends) => ends,
        // A former run that had only one range is continued in it.
        None if config.partitions > 1 && out.saved(&partition(0)).is_none() => {
            let ends = match extremes(select, connection).await? {
                Some((least, most)) => ends(least, most, config.partitions),
                None => Vec::new(),
            };
            keep(&of_ends, &ends, out).await;
            ends
        }
        None => Vec::new(),
    };
    let count = ends.len() + 1;
    let range = |number: usize| {
        let partition = select.key.is_some().then(|| partition(number));
        let saved = partition.as_ref().and_then(|partition| out.saved(partition));
        Range {
            number,
            path: match count {
                1 => select.path.as_str().into(),
                _ => format!("{}:{number}", select.path).into(),
            },
            until: ends.get(number).copied(),
            after: saved.and_then(|saved| serde_json::from_value(saved).ok()).or_else(|| {
                // Keys up to the end of the range before.
                let before = *ends.get(number.checked_sub(1)?)?;
                Some(Place { key: before.to_string(), cursor: None })
            }),
            partition,
            sent: 0,
        }
    };
    Ok((0..count).map(range).collect())
}

/// Saves the ends of ranges before anything is read. A run that was killed before its first checkpoint would
/// be followed by one with other ranges, if the table has changed: its rows would have other paths, by which
/// sinks recognise them.
async fn keep(partition: &Arc<str>, ends: &[i64], out: &SourceOutput) {
    out.checkpoint(Checkpoint { partition: partition.clone(), offset: ends.to_vec().into() });
    if !out.is_dry() {
        tokio::select! {
            () = out.save() => {}
            () = out.stopping() => {}
        }
    }
}

/// Returns the smallest and the largest key. None if there are no rows.
async fn extremes(select: &Select, connection: &Connection) -> Result<Option<(i64, i64)>, Error> {
    let Some(key) = &select.key else { return Ok(None) };
    let key = identifier(&key.name);
    let query = format!("SELECT min({key})::text, max({key})::text FROM {} AS q", select.table());
    let rows = connection.rows(&query).await;
    let rows =
        rows.map_err(|failure| failure.error(format!("cannot read `{}`", select.path), Moment::Start))?;
    let number = |value: &Option<String>| value.as_ref()?.parse().ok();
    Ok(match rows.first().map(Vec::as_slice) {
        Some([least, most]) => number(least).zip(number(most)),
        _ => None,
    })
}

/// Returns the ends of all ranges but the last: `count` ranges of about the same size.
fn ends(least: i64, most: i64, count: usize) -> Vec<i64> {
    let (least, most) = (i128::from(least), i128::from(most));
    let size = ((most - least) / count as i128).max(1);
    let ends = (1..count as i128).map(|number| least - 1 + number * size);
    ends.take_while(|end| *end < most).filter_map(|end| i64::try_from(end).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_have_about_the_same_size() {
        assert_eq!(ends(1, 100, 4), [24, 48, 72]);
        assert_eq!(ends(1, 2, 4), [1]);
        assert_eq!(ends(7, 7, 4), [0; 0]);
        assert_eq!(ends(i64::MIN, i64::MAX, 2), [-2]);
    }

    proptest! {
        #[test]
        fn ends_ascend_within_the_keys(one: i64, other: i64, count in 1..65usize) {
            let (least, most) = (one.min(other), one.max(other));
            let ends = ends(least, most, count);
            prop_assert!(ends.len() < count);
            prop_assert!(ends.is_sorted_by(|a, b| a < b));
            prop_assert!(ends.iter().all(|end| (least..most).contains(end)));
        }
    }
}
