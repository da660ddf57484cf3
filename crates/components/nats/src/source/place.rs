//! The place of a message in its stream, which the server writes into the subject for its acknowledgement.

/// The longest subject for an acknowledgement, in bytes. It is kept as long as its message is on its way.
const LONGEST: usize = 1024;

/// The place of a message in its stream, and in the deliveries of its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the message in the stream.
    pub(super) sequence: u64,
    /// The number of this delivery among all of the consumer.
    pub(super) delivery: u64,
    /// How many times the message was delivered, this time included.
    pub(super) attempt: u64,
    /// When the stream stored the message, in nanoseconds since 1970.
    pub(super) stored_ns: i64,
}

impl Place {
    /// Reads the subject for the acknowledgement. `None` if it is not that of a stream.
    ///
    /// The subject is `$JS.ACK.STREAM.CONSUMER.` or `$JS.ACK.DOMAIN.ACCOUNT.STREAM.CONSUMER.`, and then the
    /// numbers, of which servers may add further ones at the end.
    pub(super) fn of(reply: &str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.").filter(|_| reply.len() <= LONGEST)?;
        let words: Vec<&str> = rest.split('.').take(10).collect();
        let numbers = match words.len() {
            7 => &words[2..],
            9.. => &words[4..],
            _ => return None,
        };
        let &[attempt, sequence, delivery, stored_ns, ..] = numbers else { return None };
        Some(Self {
            sequence: sequence.parse().ok()?,
            delivery: delivery.parse().ok()?,
            attempt: attempt.parse().ok()?,
            stored_ns: stored_ns.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_place_is_read_from_the_subjects_of_old_and_new_servers() {
        let place = Place { sequence: 12, delivery: 34, attempt: 2, stored_ns: 1_700_000_000_000_000_001 };
        for reply in [
            "$JS.ACK.ORDERS.archive.2.12.34.1700000000000000001.5",
            "$JS.ACK._.hash.ORDERS.archive.2.12.34.1700000000000000001.5",
            "$JS.ACK.hub.hash.ORDERS.archive.2.12.34.1700000000000000001.5.token",
            "$JS.ACK.hub.hash.ORDERS.archive.2.12.34.1700000000000000001.5.token.more",
        ] {
            assert_eq!(Place::of(reply), Some(place), "{reply}");
        }
        for reply in [
            "",
            "_INBOX.a.b",
            "$JS.ACK.",
            "$JS.ACK.ORDERS.archive.2.12.34.1700000000000000001",
            "$JS.ACK.a.ORDERS.archive.2.12.34.1700000000000000001.5",
            "$JS.ACK.ORDERS.archive.-2.12.34.1700000000000000001.5",
            "$JS.ACK.ORDERS.archive.2.99999999999999999999.34.1.5",
        ] {
            assert_eq!(Place::of(reply), None, "{reply}");
        }
        let long = format!("$JS.ACK.{}.archive.2.12.34.1.5", "x".repeat(LONGEST));
        assert_eq!(Place::of(&long), None);
    }

    proptest! {
        #[test]
        fn any_subject_is_read_or_refused(reply in "(\\$JS\\.ACK\\.)?([a-z0-9.]|\\PC){0,80}") {
            let place = Place::of(&reply);
            prop_assert!(place.is_none() || reply.starts_with("$JS.ACK."));
        }
    }
}
