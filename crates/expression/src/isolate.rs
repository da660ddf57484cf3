//! Runs the parser and the planner on a thread with a large stack.
//!
//! Both walk their trees recursively, and their stack frames are large because they are compiled for size,
//! not for speed. Their depth is bounded (see `syntax`), but a caller's stack may be as small as that of a
//! tokio worker or a test. Parsing happens once per expression and planning once per set of types, so an own
//! thread is cheap. The thread also contains a panic in third-party code.

use crate::ExpressionError;

/// The stack size in bytes. This is address space: only the pages in use take memory.
const STACK: usize = 256 << 20;

/// Runs `work` on a thread with a large stack.
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
            Err(ExpressionError::new("The SQL planner panicked on this expression.")
                .help("Rewrite it, and please report this bug."))
        })
    })
}
