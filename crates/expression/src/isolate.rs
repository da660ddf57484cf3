//! Room to think for the parser and the planner.
//!
//! Both walk their trees by recursion, and their frames are large since they are compiled for size of
//! build, not for speed. How deep they go is bounded (see `syntax`), but a caller's stack may be as small
//! as a tokio worker's or a test's. Parsing and planning happen once for an expression and once for each
//! set of types, so a thread of their own is cheap. It also keeps a panic in code that is not ours from
//! taking the process along.

use crate::ExpressionError;

/// Address space, not memory: only the pages that are touched count.
const STACK: usize = 256 << 20;

/// Runs `work` on a stack that is deep enough for it.
pub(crate) fn isolated<T: Send>(
    work: impl FnOnce() -> Result<T, ExpressionError> + Send,
) -> Result<T, ExpressionError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("thalweg-expression".into())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| {
                ExpressionError::new(format!("No thread could be started to compile it: {error}."))
            })?;
        thread.join().unwrap_or_else(|_| {
            Err(ExpressionError::new("The SQL planner broke on this expression.")
                .help("Write it in another way, and please report it."))
        })
    })
}
