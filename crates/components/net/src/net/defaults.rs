//! Defaults of options that several components share.

use thalweg_config::{ByteSize, TimeSpan};

use thalweg_codec::framing::DEFAULT_LIMIT;

/// Default of `max_message_bytes` and `max_answer_bytes`.
pub fn limit() -> ByteSize {
    DEFAULT_LIMIT
}

/// Default of `max_connections`.
pub fn connections() -> usize {
    1024
}

/// Default of `max_pending`.
pub fn pending() -> usize {
    1024
}

/// Default of `concurrency` and other numbers of what is done at a time.
pub fn one() -> usize {
    1
}

/// Default of options that have to be turned off.
pub fn yes() -> bool {
    true
}

/// Default of `max_delay` of sinks that send requests.
pub fn a_tenth_of_a_second() -> TimeSpan {
    TimeSpan::milliseconds(100)
}

/// Default of `acknowledge_timeout`, and of `timeout` of the sink `proxy`.
pub fn one_second() -> TimeSpan {
    TimeSpan::seconds(1)
}

/// Default of `write_timeout` of the source `proxy`.
pub fn ten_seconds() -> TimeSpan {
    TimeSpan::seconds(10)
}

/// Default of `read_timeout` and similar options.
pub fn half_a_minute() -> TimeSpan {
    TimeSpan::seconds(30)
}

/// Default of `keep_alive_interval` and `consumer_timeout`.
pub fn one_minute() -> TimeSpan {
    TimeSpan::seconds(60)
}

/// Default of `client_id` of clients that do not need another one for each run.
pub fn client_id() -> String {
    "thalweg".to_owned()
}
