//! Runs that share a queue, and a server that fails, as users have them.

use std::collections::BTreeSet;

use thalweg_testbed::Amqp;

use crate::brokers::{self, Hangs};

const MESSAGES: u32 = 30_000;

/// Processes are killed and started again, connections are cut, and the server restarts and hangs.
#[test]
fn processes_that_share_a_queue_and_are_killed_lose_no_message() {
    let mut amqp = Amqp::start().unwrap();
    amqp.declare("numbers", &[]).unwrap();
    amqp.publish("", "numbers", (0..MESSAGES).map(|number| number.to_string())).unwrap();
    let address = amqp.relayed_address();
    let source = |_: usize| format!("amqp: {{ servers: '{address}', queues: numbers, prefetch: 1000 }}");
    let progress = |_: &Amqp| "the server tells nothing".to_owned();
    brokers::members_that_are_killed_lose_nothing(&mut amqp, Hangs::Yes, MESSAGES, source, progress);
}

/// The sink waits for a server that is down, within its memory, and sends what it got in order.
#[test]
fn a_sink_waits_for_a_server_that_is_down_without_loss_and_within_the_memory() {
    let mut amqp = Amqp::start().unwrap();
    amqp.declare("q", &[]).unwrap();
    let sink = format!("amqp: {{ servers: '{}', routing_key: q, timeout: 1s }}", amqp.relayed_address());
    brokers::a_sink_waits(&mut amqp, &sink);
    let messages = amqp.take_messages("q").unwrap();
    // Messages whose confirmation was lost are there twice: what is new is in order.
    let mut seen = BTreeSet::new();
    let new = messages.iter().map(|message| message.payload.as_bytes()).filter(|line| seen.insert(*line));
    brokers::assert_all_in_order(new);
}
