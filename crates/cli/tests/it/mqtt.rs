//! Runs that share a subscription, and a server that fails, as users have them.

use std::collections::BTreeSet;

use thalweg_testbed::Mqtt;

use crate::brokers::{self, Hangs};
use crate::common::House;

const MESSAGES: u32 = 30_000;

/// Processes are killed and resume their sessions, connections are cut, and the server restarts and hangs.
#[test]
fn processes_that_share_a_subscription_and_are_killed_lose_no_message() {
    let mut mqtt = Mqtt::start().unwrap();
    let address = mqtt.relayed_address();
    let source = |run: usize| {
        format!("mqtt: {{ servers: '{address}', topics: '$share/g/numbers', client_id: 'member-{run}' }}")
    };
    // The server drops messages that no session waits for, and divides them among the sessions that are
    // there.
    let house = House::with(&[]);
    for run in 0..3 {
        brokers::read_to_the_end(&house, &source(run));
    }
    mqtt.publish("numbers", (0..MESSAGES).map(|number| number.to_string())).unwrap();
    let progress = |_: &Mqtt| "the server tells nothing".to_owned();
    brokers::members_that_are_killed_lose_nothing(&mut mqtt, Hangs::Yes, MESSAGES, source, progress);
}

/// The sink waits for a server that is down, within its memory, and sends what it got in order.
#[test]
fn a_sink_waits_for_a_server_that_is_down_without_loss_and_within_the_memory() {
    let mut mqtt = Mqtt::start().unwrap();
    mqtt.subscribe("s", "t").unwrap();
    let sink = format!("mqtt: {{ servers: '{}', topic: t, timeout: 1s }}", mqtt.relayed_address());
    brokers::a_sink_waits(&mut mqtt, &sink);
    let messages = mqtt.messages("s", "t").unwrap();
    // Messages whose confirmation was lost are there twice: what is new is in order.
    let mut seen = BTreeSet::new();
    let new = messages.iter().map(|message| message.payload.as_bytes()).filter(|line| seen.insert(*line));
    brokers::assert_all_in_order(new);
}
