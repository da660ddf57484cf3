//! Times and sizes that no user means, for components that wait for a server.

use std::time::Duration;

use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::Mistake;

/// No user means to wait longer than this for a server.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the mistake of a time within which no server can answer.
pub fn check_timeout(option: &'static str, timeout: TimeSpan) -> Option<Mistake> {
    let mistake = || Mistake::new(option, "No server can answer in no time.").help("For example `30s`.");
    timeout.is_zero().then(mistake)
}

/// Returns the remark on a time after which a server that hangs is noticed, or messages are sent.
pub fn long_time(option: &'static str, time: TimeSpan) -> Option<Mistake> {
    let remark = || {
        let message = format!("`{option}` is {time}, and until then nothing happens if a server hangs.");
        Mistake::new(option, message).help("Seconds are `s`, milliseconds `ms`.")
    };
    (*time > DAY).then(remark)
}

/// Returns the mistake of a source that asks for more at once than there is memory for.
pub fn check_fetch_size(size: Option<ByteSize>, memory: ByteSize) -> Option<Mistake> {
    let size = size.filter(|size| *size > memory)?;
    let message = format!("`fetch_size` is {size}, more than `memory`: {memory}.");
    Some(Mistake::new("fetch_size", message).help("Lower it, or raise `memory`."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_nothing_and_of_days_are_found() {
        assert!(check_timeout("timeout", TimeSpan::seconds(0)).is_some());
        assert!(check_timeout("timeout", TimeSpan::milliseconds(1)).is_none());
        assert!(long_time("timeout", TimeSpan::seconds(30 * 24 * 60 * 60)).is_some());
        assert!(long_time("timeout", TimeSpan::seconds(60 * 60)).is_none());
    }
}
