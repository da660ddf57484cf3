//! The shards of a stream: where each is read, and when.
//!
//! A shard that is divided is closed, and two others continue it; two that are merged are closed, and one
//! continues them. A record of a key in a later shard is newer than those in an earlier one. So a shard is
//! read when those that it continues are read to their ends, or no longer exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Start;

/// Where a shard is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// At its first record.
    Horizon,
    /// At its next record. The time is that of now, in milliseconds since 1970.
    Latest(i64),
    /// At the first record that is not older, in milliseconds since 1970.
    Time(i64),
    /// After the record of this number.
    After(String),
    /// Nowhere: it is read to its end.
    Ended,
}

impl Place {
    /// Returns the offset of a checkpoint.
    pub(super) fn offset(&self) -> Value {
        match self {
            Self::Horizon => json!({}),
            Self::Latest(time) | Self::Time(time) => json!({ "time": time }),
            Self::After(sequence) => json!({ "sequence": sequence }),
            Self::Ended => json!({ "ended": true }),
        }
    }

    /// Reads the offset of a checkpoint.
    pub(super) fn read(offset: &Value) -> Self {
        let sequence = offset.get("sequence").and_then(Value::as_str);
        match (sequence, offset.get("time").and_then(Value::as_i64)) {
            (Some(sequence), _) => Self::After(sequence.to_owned()),
            (None, Some(time)) => Self::Time(time),
            (None, None) if offset.get("ended").is_some() => Self::Ended,
            (None, None) => Self::Horizon,
        }
    }

    /// Adds it to a request for an iterator.
    pub(super) fn ask(&self, body: &mut Value) {
        body["ShardIteratorType"] = match self {
            Self::Horizon | Self::Ended => json!("TRIM_HORIZON"),
            Self::Latest(_) => json!("LATEST"),
            Self::Time(milliseconds) => {
                body["Timestamp"] = json!(*milliseconds as f64 / 1000.0);
                json!("AT_TIMESTAMP")
            }
            Self::After(sequence) => {
                body["StartingSequenceNumber"] = json!(sequence);
                json!("AFTER_SEQUENCE_NUMBER")
            }
        };
    }
}

/// A shard in a listing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Listed {
    shard_id: String,
    parent_shard_id: Option<String>,
    adjacent_parent_shard_id: Option<String>,
    sequence_number_range: Range,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Range {
    /// That of the last record of a shard that is closed.
    ending_sequence_number: Option<String>,
}

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    parents: Vec<String>,
    pub(super) is_closed: bool,
    pub(super) place: Place,
    /// The iterator of the next request, if there is one.
    pub(super) iterator: Option<String>,
    /// It is not asked before.
    pub(super) due: Instant,
    /// True while a request is on its way.
    pub(super) is_asked: bool,
    /// True if it was known to be closed before the last request.
    was_closed: bool,
    /// True if the last answer was the end of what the shard had.
    pub(super) is_at_end: bool,
    /// True if an answer was too long: records are asked for one by one.
    pub(super) is_slow: bool,
    /// How far the last answer was behind the end of the shard, in milliseconds.
    pub(super) behind: u64,
}

impl Shard {
    /// Notes that a request begins.
    pub(super) fn begin_request(&mut self) {
        (self.is_asked, self.was_closed) = (true, self.is_closed);
    }

    /// True if the answer to the last request is the end of the shard, which the server may say by itself.
    /// Some servers never do: then it is a closed shard without further records. If it was closed only after
    /// it was asked, it may have got records in between.
    pub(super) fn has_ended(&self, says_so: bool, is_at_end: bool) -> bool {
        says_so || (self.was_closed && is_at_end)
    }
}

/// The shards of a stream.
#[derive(Debug, Default)]
pub(super) struct Shards {
    all: BTreeMap<Arc<str>, Shard>,
}

/// The changes by a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Shards that are new to this run and to its checkpoint, with the places where they begin. A later run
    /// must know them, also those without records: it would not know that the stream has begun.
    pub(super) begun: Vec<(Arc<str>, Place)>,
    /// Shards that no longer exist.
    pub(super) gone: Vec<Arc<str>>,
}

impl Shards {
    /// Notes a listing. `saved` returns the place of a checkpoint. `start` is where a stream without a
    /// checkpoint begins, at the time `now` in milliseconds since 1970; it is None if this one has begun.
    pub(super) fn list(
        &mut self,
        listed: Vec<Listed>,
        start: Option<Start>,
        now: i64,
        saved: impl Fn(&str) -> Option<Place>,
    ) -> Changes {
        let mut changes = Changes::default();
        let due = Instant::now();
        let is_listed = |id: &str| listed.iter().any(|listed| listed.shard_id == id);
        self.all.retain(|id, shard| {
            let is_kept = shard.is_asked || is_listed(id);
            if !is_kept {
                changes.gone.push(id.clone());
            }
            is_kept
        });
        for Listed { shard_id, parent_shard_id, adjacent_parent_shard_id, sequence_number_range } in listed {
            let is_closed = sequence_number_range.ending_sequence_number.is_some();
            if let Some(known) = self.all.get_mut(shard_id.as_str()) {
                known.is_closed |= is_closed;
                continue;
            }
            let id: Arc<str> = shard_id.into();
            let place = saved(&id).unwrap_or_else(|| {
                let place = match start {
                    None | Some(Start::Earliest) => Place::Horizon,
                    Some(Start::Latest) if is_closed => Place::Ended,
                    Some(Start::Latest) => Place::Latest(now),
                    Some(Start::Time(time)) => Place::Time(time),
                };
                changes.begun.push((id.clone(), place.clone()));
                place
            });
            let parents = [parent_shard_id, adjacent_parent_shard_id].into_iter().flatten().collect();
            let shard = Shard {
                parents,
                is_closed,
                place,
                iterator: None,
                due,
                is_asked: false,
                was_closed: false,
                is_at_end: false,
                is_slow: false,
                behind: 0,
            };
            self.all.insert(id, shard);
        }
        changes
    }

    /// Returns a shard.
    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Shard> {
        self.all.get_mut(id)
    }

    /// True if a shard continues this one.
    pub(super) fn is_continued(&self, id: &str) -> bool {
        self.all.values().any(|shard| shard.parents.iter().any(|parent| parent == id))
    }

    fn is_ready(&self, shard: &Shard) -> bool {
        let is_over =
            |parent: &String| self.all.get(parent.as_str()).is_none_or(|parent| parent.place == Place::Ended);
        shard.place != Place::Ended && !shard.is_asked && shard.parents.iter().all(is_over)
    }

    /// Returns the shard that is to be asked next, if one is due.
    pub(super) fn due(&self, now: Instant) -> Option<Arc<str>> {
        let ready = self.all.iter().filter(|(_, shard)| shard.due <= now && self.is_ready(shard));
        ready.min_by_key(|(_, shard)| shard.due).map(|(id, _)| id.clone())
    }

    /// True if all that the shards had at the last answer of each was read. Of many shards, some are always
    /// being asked again.
    pub(super) fn are_at_end(&self) -> bool {
        self.all.values().all(|shard| shard.place == Place::Ended || shard.is_at_end)
    }

    /// Returns how far the shard that is the furthest behind is behind its end, in milliseconds.
    pub(super) fn behind(&self) -> u64 {
        let open = self.all.values().filter(|shard| shard.place != Place::Ended);
        open.map(|shard| shard.behind).max().unwrap_or(0)
    }

    /// Notes that requests on their way were given up.
    pub(super) fn forget_requests(&mut self) {
        for shard in self.all.values_mut() {
            (shard.is_asked, shard.iterator) = (false, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(id: &str, parents: [Option<&str>; 2], is_closed: bool) -> Listed {
        let [parent_shard_id, adjacent_parent_shard_id] = parents.map(|parent| parent.map(str::to_owned));
        let ending_sequence_number = is_closed.then(|| "9".to_owned());
        let sequence_number_range = Range { ending_sequence_number };
        Listed { shard_id: id.to_owned(), parent_shard_id, adjacent_parent_shard_id, sequence_number_range }
    }

    fn family() -> Vec<Listed> {
        vec![
            listed("a", [None, None], true),
            listed("b", [None, None], true),
            listed("c", [Some("a"), Some("b")], false),
        ]
    }

    fn ended(shards: &mut Shards, id: &str) {
        shards.get_mut(id).unwrap().place = Place::Ended;
    }

    #[test]
    fn a_shard_is_read_after_those_that_it_continues() {
        let mut shards = Shards::default();
        let changes = shards.list(family(), Some(Start::Earliest), 0, |_| None);
        assert_eq!(changes.begun, ["a", "b", "c"].map(|id| (Arc::<str>::from(id), Place::Horizon)));
        let mut read = Vec::new();
        while let Some(id) = shards.due(Instant::now()) {
            ended(&mut shards, &id);
            read.push(id);
        }
        assert_eq!(read.last().map(|id| &**id), Some("c"));
        assert_eq!(read.len(), 3);
        assert!(shards.are_at_end() && shards.is_continued("a") && !shards.is_continued("c"));
    }

    #[test]
    fn a_shard_whose_parents_no_longer_exist_is_read_and_they_are_forgotten() {
        let mut shards = Shards::default();
        shards.list(family(), None, 0, |_| None);
        let rest = vec![listed("c", [Some("a"), Some("b")], false)];
        let changes = shards.list(rest, None, 0, |_| None);
        assert_eq!(changes.gone, [Arc::<str>::from("a"), Arc::from("b")]);
        assert_eq!(shards.due(Instant::now()).as_deref(), Some("c"));
    }

    #[test]
    fn a_shard_that_was_closed_while_it_was_asked_is_asked_again() {
        let mut shards = Shards::default();
        shards.list(vec![listed("a", [None, None], false)], None, 0, |_| None);
        shards.get_mut("a").unwrap().begin_request();
        shards.list(vec![listed("a", [None, None], true)], None, 0, |_| None);
        let shard = shards.get_mut("a").unwrap();
        assert!(!shard.has_ended(false, true) && shard.has_ended(true, false));
        shard.begin_request();
        assert!(shard.has_ended(false, true) && !shard.has_ended(false, false));
    }

    #[test]
    fn shards_that_are_being_asked_again_are_at_their_ends() {
        let mut shards = Shards::default();
        shards.list(family(), None, 0, |_| None);
        for id in ["a", "b", "c"] {
            assert!(!shards.are_at_end());
            let shard = shards.get_mut(id).unwrap();
            shard.begin_request();
            shard.is_at_end = true;
        }
        assert!(shards.are_at_end());
    }

    #[test]
    fn a_stream_begins_at_the_start_and_later_shards_at_their_first_records() {
        let mut shards = Shards::default();
        let changes = shards.list(family(), Some(Start::Latest), 5, |_| None);
        let begun: Vec<(&str, Place)> =
            changes.begun.iter().map(|(id, place)| (&**id, place.clone())).collect();
        assert_eq!(begun, [("a", Place::Ended), ("b", Place::Ended), ("c", Place::Latest(5))]);
        let mut later = family();
        later.push(listed("d", [Some("c"), None], false));
        // Also of a shard without records, or a later run could begin at its start, after those that come.
        let changes = shards.list(later, None, 6, |_| None);
        assert_eq!(changes, Changes { begun: vec![("d".into(), Place::Horizon)], gone: Vec::new() });
        assert_eq!(shards.get_mut("d").unwrap().place, Place::Horizon);
        let mut resumed = Shards::default();
        resumed.list(family(), None, 7, |id| (id == "c").then(|| Place::read(&Place::Latest(5).offset())));
        assert_eq!(resumed.get_mut("c").unwrap().place, Place::Time(5));
    }

    #[test]
    fn the_lag_is_that_of_the_slowest_shard_that_has_not_ended() {
        let mut shards = Shards::default();
        shards.list(family(), None, 0, |_| None);
        for (id, behind) in [("a", 9000), ("b", 0), ("c", 5000)] {
            shards.get_mut(id).unwrap().behind = behind;
        }
        assert_eq!(shards.behind(), 9000);
        ended(&mut shards, "a");
        assert_eq!(shards.behind(), 5000);
    }

    #[test]
    fn an_offset_is_read_as_it_was_saved() {
        for place in [Place::Horizon, Place::Time(5), Place::After("7".to_owned()), Place::Ended] {
            assert_eq!(Place::read(&place.offset()), place);
        }
    }

    proptest! {
        /// However shards continue each other, none is read before one that it continues, and each is read.
        #[test]
        fn no_shard_is_read_before_one_that_it_continues(
            parents in prop::collection::vec((0..12usize, 0..12usize), 1..12),
        ) {
            let name = |number: usize| format!("s{number}");
            let all: Vec<Listed> = parents.iter().enumerate().map(|(number, (one, other))| {
                let parent = |of: &usize| (*of < number).then(|| name(*of));
                listed(&name(number), [parent(one).as_deref(), parent(other).as_deref()], true)
            }).collect();
            let mut shards = Shards::default();
            shards.list(all, None, 0, |_| None);
            let mut read: Vec<String> = Vec::new();
            while let Some(id) = shards.due(Instant::now()) {
                ended(&mut shards, &id);
                read.push(id.to_string());
            }
            prop_assert_eq!(read.len(), parents.len());
            let place = |id: &str| read.iter().position(|read| read == id);
            for (number, (one, other)) in parents.iter().enumerate() {
                for parent in [one, other].into_iter().filter(|parent| **parent < number) {
                    prop_assert!(place(&name(*parent)) < place(&name(number)));
                }
            }
        }
    }
}
