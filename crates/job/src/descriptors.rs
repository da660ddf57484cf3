//! The number of files and connections that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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
