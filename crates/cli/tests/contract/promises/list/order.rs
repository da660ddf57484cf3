//! The section "Order".

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
    shown(
        "Messages of one source, or of one file, reach a sink in the order in which they were read, also through parallel transforms and across restarts.",
        &[
            "cli: every_source_into_every_sink",
            "cli: order_is_kept_with_many_copies_and_any_budget",
            "runtime: any_order_of_arrival_leaves_in_the_order_of_tickets",
            "file_reader: files, lines -> file",
        ],
    ),
    explains(
        "No order holds between sources, with `ordered: false`, with `concurrency` above one in a sink, after a failover, for replayed dead letters, and for messages that `nats`, `redis` or a service of Amazon takes only at a further attempt.",
        "says what is not promised",
    ),
];
