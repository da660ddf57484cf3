//! Evaluations over asyncio: `async def` code that runs in the caller's stack until it first has to wait.
//!
//! What never waits touches no event loop: it is one call of the interpreter that sends into the coroutine, in a context of its
//! own. Only when the code gives something to wait for is there an `Evaluation` (a future of asyncio, defined in Python, since the stable
//! ABI cannot derive from it) and a [`Driver`](driver::Driver) that takes the rest of the code from wait to wait, as a task of
//! asyncio does. During the first step already, the evaluation is what `asyncio.current_task()` gives, or else a timeout begun in it
//! would later cancel the caller.
//!
//! Handing the rest over to a real task was rejected: it would have to be there before the first step, where it is what costs most.

mod asyncio;
mod driver;
mod first;
mod forgotten;
mod interpreter;
mod proc;
mod waiter;

pub use proc::{ConcurrentProc, evaluate};
pub use waiter::Waiter;
