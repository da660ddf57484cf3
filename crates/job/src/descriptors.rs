//! The number of files and connections that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thalweg_engine::Error;
use thalweg_runtime::descriptors::{LEAST, limit};

/// Raises the limit of this process to what the system allows it. Systems set a low one for programs that use
/// `select`, which this one does not. Call it at the start of a program.
pub fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!("the number of open files stays limited to {current:?}: {error}");
    }
}

/// Refuses to run with so few descriptors that a run would wait for one without end.
///
/// # Errors
/// If this process may have too few files open.
pub(crate) fn check_descriptor_limit() -> Result<(), Error> {
    match limit() {
        Some(limit) if limit < LEAST => Err(Error::permanent(format!(
            "this process may have {limit} files open, and a run needs at least {LEAST}: raise the limit, for example \
             with `ulimit -n 1024`"
        ))),
        _ => Ok(()),
    }
}
