//! How long a sink tries to deliver a batch: the option `give_up` of all sinks that have it.
//!
//! The time counts from the first attempt that fails, and starts again with each message of the batch that
//! the server takes or refuses: a server that answers has not been failing. The pauses between attempts
//! count. The time of an attempt counts from its beginning, so a server that hangs fails from then on.
//!
//! Each batch has its time. One clock for all batches was rejected: after a long failure, everything behind
//! the first batch would leave after a single attempt, although the server may be back in a moment.

use thalweg_config::TimeSpan;
use thalweg_engine::Error;
use tokio::time::Instant;

/// The time that the present batch of a sink may still fail.
#[derive(Debug, Clone, Copy)]
pub struct GiveUp {
    /// None to try for as long as it takes.
    span: Option<TimeSpan>,
    /// When the first attempt that has not succeeded began.
    since: Option<Instant>,
}

impl GiveUp {
    /// Begins without a batch. `span` is the option `give_up`.
    pub fn after(span: Option<TimeSpan>) -> Self {
        Self { span, since: None }
    }

    /// Notes that an attempt to send the batch, or the rest of it, begins.
    pub fn attempt(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// Notes that a message of the batch was taken or refused.
    pub fn succeeded(&mut self) {
        self.since = Some(Instant::now());
    }

    /// Notes that the batch is done, or takes another way.
    pub fn end(&mut self) {
        self.since = None;
    }

    /// Returns the reason for which the messages leave, after an attempt that failed with this error: if the
    /// server has been failing for as long as it may.
    pub fn reason(&self, error: &str) -> Option<String> {
        let (span, since) = (self.span?.duration(), self.since?);
        (since.elapsed() >= span)
            .then(|| format!("could not be sent for {} s (`give_up`): {error}", span.as_secs_f64()))
    }

    /// As [`reason`](Self::reason), for an error that ends an attempt.
    ///
    /// # Errors
    /// That error, if the batch is to be sent again, or cannot be sent by any attempt.
    pub fn refusal(&self, error: Error) -> Result<String, Error> {
        match self.reason(&error.full()).filter(|_| error.kind().is_temporary()) {
            Some(reason) => Ok(reason),
            None => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_first_failed_attempt_and_again_from_each_success() {
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let mut give_up = GiveUp::after(Some(TimeSpan::seconds(10)));
        wait(60).await;
        assert_eq!(give_up.reason("no batch"), None);
        give_up.attempt();
        wait(6).await;
        give_up.attempt();
        assert_eq!(give_up.reason("down"), None);
        give_up.succeeded();
        wait(6).await;
        assert_eq!(give_up.reason("down"), None);
        wait(4).await;
        let reason = "could not be sent for 10 s (`give_up`): down".to_owned();
        assert_eq!(give_up.reason("down"), Some(reason));
        give_up.end();
        give_up.attempt();
        assert_eq!(give_up.reason("the next batch"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_do_not_leave_because_of_an_error_that_ends_the_run() {
        let mut give_up = GiveUp::after(Some(TimeSpan::seconds(10)));
        give_up.attempt();
        assert_eq!(give_up.refusal(Error::temporary("down")).unwrap_err().to_string(), "down");
        tokio::time::advance(Duration::from_secs(10)).await;
        let reason = give_up.refusal(Error::temporary("down")).unwrap();
        assert_eq!(reason, "could not be sent for 10 s (`give_up`): down");
        assert_eq!(give_up.refusal(Error::permanent("wrong")).unwrap_err().to_string(), "wrong");
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_option_there_is_no_end() {
        let mut give_up = GiveUp::after(None);
        give_up.attempt();
        tokio::time::advance(Duration::from_hours(1000)).await;
        assert_eq!(give_up.reason("down"), None);
    }
}
