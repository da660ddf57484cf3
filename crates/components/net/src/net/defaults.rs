//! What options are where nothing is said, the same for all sources that listen.

use thalweg_config::{ByteSize, TimeSpan};

use thalweg_codec::framing::DEFAULT_LIMIT;

/// Of `max_message_bytes`, `max_answer_bytes`.
pub fn limit() -> ByteSize {
    DEFAULT_LIMIT
}

/// Of `max_connections`.
pub fn connections() -> usize {
    1024
}

/// Of `acknowledge_timeout`, and of `timeout` of the sink `proxy`.
pub fn one_second() -> TimeSpan {
    TimeSpan::seconds(1)
}

/// Of `connect_timeout`.
pub fn five_seconds() -> TimeSpan {
    TimeSpan::seconds(5)
}

/// Of `write_timeout` of the source `proxy`.
pub fn ten_seconds() -> TimeSpan {
    TimeSpan::seconds(10)
}

/// Of `read_timeout` and what is like it.
pub fn half_a_minute() -> TimeSpan {
    TimeSpan::seconds(30)
}

/// Of what is on unless it is turned off.
pub fn yes() -> bool {
    true
}
