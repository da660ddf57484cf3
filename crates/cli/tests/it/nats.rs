//! Runs that share a consumer, and a server that fails, as users have them.

use thalweg_testbed::{Nats, NatsMessage};

use crate::brokers::{self, Hangs};

const MESSAGES: u32 = 30_000;

/// Processes are killed and started, connections are cut, and the server crashes and hangs.
#[test]
fn processes_that_share_a_consumer_and_are_killed_lose_no_message() {
    let mut nats = Nats::start().unwrap();
    nats.create_stream("NUMBERS", &["numbers"]).unwrap();
    nats.store((0..MESSAGES).map(|number| NatsMessage::new("numbers", number.to_string()))).unwrap();
    let address = nats.relayed_address();
    let source =
        |_| format!("nats: {{ servers: '{address}', stream: NUMBERS, consumer: c, ack_timeout: 2s }}");
    let progress = |nats: &Nats| format!("{:?}", nats.consumer("NUMBERS", "c"));
    brokers::members_that_are_killed_lose_nothing(&mut nats, Hangs::Yes, MESSAGES, source, progress);
    let state = nats.consumer("NUMBERS", "c").unwrap();
    assert_eq!((state.pending, state.ack_pending), (0, 0));
}

/// The sink waits for a server that is down, within its memory, and stores what it got once and in order.
#[test]
fn a_sink_waits_for_a_server_that_is_down_without_loss_and_within_the_memory() {
    let mut nats = Nats::start().unwrap();
    nats.create_stream("S", &["s"]).unwrap();
    let sink = format!("nats: {{ servers: '{}', subject: s, timeout: 1s }}", nats.relayed_address());
    brokers::a_sink_waits(&mut nats, &sink);
    let messages = nats.messages("S").unwrap();
    brokers::assert_all_once(messages.iter().map(|message| &message.payload));
}
