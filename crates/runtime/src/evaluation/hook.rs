//! The hooks that receive failures which no handle awaits.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::RwLock;

/// A failure that no handle awaits.
#[derive(Debug)]
#[non_exhaustive]
pub enum Forgotten {
    /// The code ended with an error.
    Failed(Box<dyn Error + Send + Sync>),
    /// The code panicked with this message.
    Panicked(Arc<str>),
}

impl fmt::Display for Forgotten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forgotten::Failed(error) => write!(f, "a forgotten evaluation failed: {error}"),
            Forgotten::Panicked(message) => write!(f, "a forgotten evaluation panicked: {message}"),
        }
    }
}

/// A result that can be forgotten without losing a failure: `()`, which cannot fail, and any `Result` whose
/// error can be boxed.
pub trait Forgettable {
    /// Converts the result.
    ///
    /// # Errors
    /// Returns the failure, if the result is one.
    fn forget(self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

impl Forgettable for () {
    fn forget(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Forgettable for Result<T, E> {
    fn forget(self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.map(drop).map_err(Into::into)
    }
}

type OfThread = Rc<dyn Fn(&Forgotten)>;
type OfAll = Arc<dyn Fn(&Forgotten) + Send + Sync>;

thread_local! {
    static OF_THREAD: RefCell<Option<OfThread>> = const { RefCell::new(None) };
}
static OF_ALL: RwLock<Option<OfAll>> = RwLock::new(None);

/// Sets the hook for failures on this thread's event loop that no handle awaits. It replaces the thread's
/// former hook.
///
/// ```
/// use std::{cell::RefCell, rc::Rc, time::Duration};
/// use thalweg_runtime::evaluation::{self, ConcurrentProc};
///
/// let seen = Rc::new(RefCell::new(Vec::new()));
/// let log = Rc::clone(&seen);
/// evaluation::on_forgotten(move |failure| log.borrow_mut().push(failure.to_string()));
///
/// let parse = ConcurrentProc::new(async |text: &'static str| text.parse::<u32>());
/// parse.call_and_forget("12");
/// parse.call_and_forget("twelve");
/// evaluation::block_on(evaluation::wait(Duration::ZERO));
/// assert_eq!(*seen.borrow(), ["a forgotten evaluation failed: invalid digit found in string"]);
/// ```
pub fn on_forgotten(hook: impl Fn(&Forgotten) + 'static) {
    let hook: OfThread = Rc::new(hook);
    let before = OF_THREAD.with(|slot| slot.replace(Some(hook)));
    drop(before);
}

/// Sets the hook for failures that no handle awaits, for all threads without a hook of their own, such as
/// tokio's. Without any hook, failures are logged as errors with `tracing`, or written to standard error if
/// there is no `tracing` subscriber.
pub fn on_forgotten_anywhere(hook: impl Fn(&Forgotten) + Send + Sync + 'static) {
    let hook: OfAll = Arc::new(hook);
    let before = OF_ALL.write().replace(hook);
    drop(before);
}

/// Calls the hook. A panic of the hook itself is not passed to the hook again.
pub(super) fn tell(failure: Forgotten) {
    let of_thread = OF_THREAD.try_with(|slot| slot.borrow().clone()).ok().flatten();
    let called = catch_unwind(AssertUnwindSafe(|| match of_thread {
        Some(hook) => hook(&failure),
        None => match OF_ALL.read().clone() {
            Some(hook) => hook(&failure),
            None if tracing::dispatcher::has_been_set() => tracing::error!("{failure}"),
            None => eprintln!("{failure}"),
        },
    }));
    if called.is_err() {
        eprintln!("the hook for forgotten failures panicked while it handled this failure: {failure}");
    }
}

/// Calls the hook if this is a failure.
pub(super) fn forget<T: Forgettable>(result: T) {
    if let Err(error) = result.forget() {
        tell(Forgotten::Failed(error));
    }
}

/// Drops a foreign value, and reports a panic of its destructor.
pub(super) fn drop_contained<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        tell(Forgotten::Panicked(super::error::message_of(&*panic)));
    }
}
