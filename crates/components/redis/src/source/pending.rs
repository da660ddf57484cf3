//! The messages that a source has received and that are not off the server yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Array, BinaryViewArray};
use thalweg_engine::Error;

use crate::id::Id;
use crate::resp::Commands;

/// The number of ids in a command.
pub(super) const IDS: usize = 1000;

/// Where the messages come from.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A stream, read by a consumer of a group.
    Stream { key: String, group: String, consumer: String, consumer_timeout: Duration },
    /// A list, whose elements are moved to the list of those that are being processed.
    List { key: String, processing: String },
}

/// Messages that were sent on together.
#[derive(Debug)]
pub(super) enum Sent {
    /// Entries of a stream, and the partition of the checkpoint that has their ids, until they are
    /// acknowledged.
    Entries { ids: Vec<Id>, partition: Option<Arc<str>> },
    /// Elements of a list.
    Elements(BinaryViewArray),
    /// The first element of the list of those being processed, which had this many elements before it was
    /// read. No other is on its way. It is removed by its place: see [`head`](super::head).
    Head { length: i64 },
}

impl Place {
    /// Adds the commands that take messages off the server. Returns how many they are.
    pub(super) fn removal(&self, sent: &Sent, commands: &mut Commands) -> usize {
        let before = commands.count();
        match (self, sent) {
            (Self::Stream { key, group, .. }, Sent::Entries { ids, .. }) => {
                for ids in ids.chunks(IDS) {
                    commands.begin(3 + ids.len());
                    [&b"XACK"[..], key.as_bytes(), group.as_bytes()]
                        .iter()
                        .for_each(|word| commands.word(word));
                    ids.iter().for_each(|id| commands.word(id.to_string().as_bytes()));
                }
            }
            (Self::List { processing, .. }, Sent::Elements(elements)) => {
                for row in 0..elements.len() {
                    commands.push(&[b"LREM", processing.as_bytes(), b"1", elements.value(row)]);
                }
            }
            // A stream has no elements, and a list no entries; its head is removed otherwise.
            _ => {}
        }
        commands.count() - before
    }
}

/// The messages of a source, as its two tasks know them.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The entries that were received and not acknowledged.
    pub(super) open: BTreeSet<Id>,
    /// The entries to read again, which are pending at the server.
    pub(super) again: BTreeSet<Id>,
    /// Those that failed, each with the time from which on they may be read again.
    later: Vec<(Instant, Vec<Id>)>,
    /// The batches of elements that were sent on and not removed.
    pub(super) batches: usize,
    /// True if the list of those being processed has elements that are not on their way.
    pub(super) is_stale: bool,
    /// True while that list is read: nothing is removed from it then, so that its elements keep their places.
    pub(super) is_held: bool,
    /// The elements may be read again from this time on.
    pub(super) stale_until: Option<Instant>,
    /// Why the source cannot go on.
    pub(super) failed: Option<Error>,
}

impl Shared {
    /// Notes that an entry was received. False if it is on its way already.
    pub(super) fn arrive(&mut self, id: Id) -> bool {
        self.again.remove(&id);
        self.open.insert(id)
    }

    /// Returns the entries that no other consumer is to claim: those on their way, and those to be read
    /// again.
    pub(super) fn kept(&self) -> Vec<Id> {
        let later = self.later.iter().flat_map(|(_, ids)| ids);
        self.open.iter().chain(&self.again).chain(later).copied().collect()
    }

    /// Returns why the source cannot go on, once.
    pub(super) fn failure(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Forgets entries that were received and not sent on, so that they are read again.
    pub(super) fn give_back(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            self.open.remove(&id);
            self.again.insert(id);
        }
    }

    /// True if nothing waits to be read again.
    pub(super) fn is_idle(&self) -> bool {
        self.again.is_empty() && self.later.is_empty() && !self.is_stale
    }

    /// Notes that messages are off the server.
    pub(super) fn done(&mut self, sent: &Sent) {
        match sent {
            Sent::Entries { ids, .. } => {
                for id in ids {
                    self.open.remove(id);
                }
            }
            Sent::Elements(_) | Sent::Head { .. } => self.batches = self.batches.saturating_sub(1),
        }
    }

    /// Notes that messages failed, and may be sent on again after `delay`.
    pub(super) fn fail(&mut self, sent: Sent, delay: Duration) {
        let until = Instant::now() + delay;
        self.done(&sent);
        match sent {
            Sent::Entries { ids, .. } => self.later.push((until, ids)),
            Sent::Elements(_) | Sent::Head { .. } => (self.is_stale, self.stale_until) = (true, Some(until)),
        }
    }

    /// Lets entries be read again whose time has come.
    pub(super) fn wake(&mut self) {
        let now = Instant::now();
        for (_, ids) in self.later.extract_if(.., |(until, _)| *until <= now) {
            self.again.extend(ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> Id {
        Id { milliseconds: number, number: 0 }
    }

    fn entries(numbers: &[u64]) -> Sent {
        Sent::Entries { ids: numbers.iter().map(|number| id(*number)).collect(), partition: None }
    }

    #[test]
    fn entries_that_failed_wait_and_are_read_again() {
        let mut shared = Shared::default();
        assert!(shared.arrive(id(1)) && shared.arrive(id(2)) && !shared.arrive(id(2)));
        shared.fail(entries(&[1]), Duration::from_secs(1000));
        shared.wake();
        assert!(shared.again.is_empty() && !shared.is_idle());
        shared.give_back([id(3)]);
        // Another consumer would claim those that wait, and this one would take them away from it again.
        assert_eq!(shared.kept(), [id(2), id(3), id(1)]);
        assert!(shared.arrive(id(3)));
        shared.done(&entries(&[3]));
        shared.fail(entries(&[2]), Duration::ZERO);
        shared.wake();
        assert_eq!(shared.again.iter().copied().collect::<Vec<_>>(), [id(2)]);
        assert!(shared.arrive(id(2)) && shared.again.is_empty());
        shared.done(&entries(&[2]));
        assert!(shared.open.is_empty());
    }

    #[test]
    fn what_is_settled_is_taken_off_the_server() {
        let stream = Place::Stream {
            key: "s".to_owned(),
            group: "g".to_owned(),
            consumer: "c".to_owned(),
            consumer_timeout: Duration::ZERO,
        };
        let list = Place::List { key: "l".to_owned(), processing: "p".to_owned() };
        let elements = BinaryViewArray::from_iter_values([b"a", b"b"]);
        let mut commands = Commands::default();
        assert_eq!(stream.removal(&entries(&[1, 2]), &mut commands), 1);
        assert_eq!(list.removal(&Sent::Elements(elements), &mut commands), 2);
        let text = String::from_utf8(commands.bytes().to_vec()).unwrap();
        let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
        assert_eq!(words.join(" "), "XACK s g 1-0 2-0 LREM p 1 a LREM p 1 b ");
    }
}
