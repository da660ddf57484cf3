/// The reason why an operation on a store failed. Cloning is cheap enough for all callers that wait for the
/// same result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL is not valid or not supported.
    #[error("`{url}` cannot be used: {why}")]
    NotAUrl {
        /// The URL that was given, without secrets.
        url: String,
        /// The reason.
        why: String,
    },
    /// There is no such object.
    #[error("there is no `{name}`")]
    Absent {
        /// The name of the object.
        name: String,
    },
    /// The store denies access.
    #[error("`{name}` may not be {what}: {why}")]
    Denied {
        /// The name of the object.
        name: String,
        /// The operation that was denied: `read`, `written`, `listed`.
        what: &'static str,
        /// The reason that the store gave.
        why: String,
    },
    /// The object is no longer in the state in which it was found.
    #[error("`{name}` has changed while it was read: it was {was}, and is {is}")]
    Changed {
        /// The name of the object.
        name: String,
        /// The former state.
        was: String,
        /// The present state.
        is: String,
    },
    /// The object was not written, because a condition of the write did not hold.
    #[error("`{name}` was not written: {why}")]
    Refused {
        /// The name of the object.
        name: String,
        /// The condition that did not hold.
        why: String,
    },
    /// The server sends the object only as a whole, not in ranges.
    #[error("the server of `{name}` does not support ranges")]
    NoRanges {
        /// The name of the object.
        name: String,
    },
    /// This kind of store does not support the operation.
    #[error("{what} is not possible at `{name}`")]
    Impossible {
        /// The name of the object or store.
        name: String,
        /// The operation that is not supported.
        what: &'static str,
    },
    /// A request failed, and retries did not help or make no sense.
    #[error("`{name}`: {what} failed{}: {why}", times(*.attempts))]
    Failed {
        /// The name of the object or store.
        name: String,
        /// The operation that failed.
        what: String,
        /// How often it was tried.
        attempts: u32,
        /// The reason of the last failure.
        why: String,
        /// True if a later attempt may succeed: only the limit on attempts ended the retries.
        is_temporary: bool,
    },
}

impl StoreError {
    /// True if a later attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, StoreError::Failed { is_temporary: true, .. })
    }
}

fn times(attempts: u32) -> String {
    if attempts < 2 { String::new() } else { format!(" {attempts} times") }
}
