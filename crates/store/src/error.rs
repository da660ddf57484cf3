/// Why something of a store could not be had, or be put there. Cloning is cheap enough for all who wait for the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A URL that means nothing here.
    #[error("`{url}` cannot be used: {why}")]
    NotAUrl {
        /// What was given, without what may be secret in it.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such object.
    #[error("there is no `{name}`")]
    Absent {
        /// Its name.
        name: String,
    },
    /// The store does not let us.
    #[error("`{name}` may not be {what}: {why}")]
    Denied {
        /// The object's name.
        name: String,
        /// What should have been done: `read`, `written`, `listed`.
        what: &'static str,
        /// What the store said.
        why: String,
    },
    /// It is not what it was when it was found.
    #[error("`{name}` has changed while it was read: it was {was}, and is {is}")]
    Changed {
        /// Its name.
        name: String,
        /// What it was.
        was: String,
        /// What it is now.
        is: String,
    },
    /// It is there already, or is not what it was to be, so it was not written.
    #[error("`{name}` was not written: {why}")]
    Refused {
        /// Its name.
        name: String,
        /// Which condition did not hold.
        why: String,
    },
    /// The store gives it as a whole only, not in ranges.
    #[error("`{name}` is only given as a whole, not in ranges")]
    NoRanges {
        /// Its name.
        name: String,
    },
    /// This kind of store cannot do that.
    #[error("{what} is not possible at `{name}`")]
    Impossible {
        /// The name of the object or store.
        name: String,
        /// What should have been done.
        what: &'static str,
    },
    /// A request failed, and trying again did not help or makes no sense.
    #[error("`{name}`: {what} failed{}: {why}", times(*.attempts))]
    Failed {
        /// The name of the object or store.
        name: String,
        /// What was asked for.
        what: String,
        /// How often it was tried.
        attempts: u32,
        /// What went wrong the last time.
        why: String,
        /// Whether it may go better later: the attempts were used up.
        is_temporary: bool,
    },
}

impl StoreError {
    /// Whether it may go better later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, StoreError::Failed { is_temporary: true, .. })
    }
}

fn times(attempts: u32) -> String {
    if attempts < 2 { String::new() } else { format!(" {attempts} times") }
}
