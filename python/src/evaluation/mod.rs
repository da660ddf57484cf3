//! Evaluations over asyncio: `async def` code that runs on the caller's stack until it first has to wait.
//!
//! Code that never waits touches no event loop. It is one call of the interpreter, which sends into the
//! coroutine in a context of its own. An `Evaluation` is only needed once the code yields something to wait
//! for. It is a future of asyncio, defined in Python because the stable ABI cannot derive from that class. A
//! [`Driver`](driver::Driver) then steps the rest of the code from wait to wait, as a task of asyncio does.
//!
//! During the first step, `asyncio.current_task()` already returns the evaluation. Otherwise a timeout that
//! begins in that step would later cancel the caller.
//!
//! Handing the rest over to a real task was rejected: the task would have to exist before the first step,
//! where it would be the largest cost.
//!
//! See docs/decisions/048-evaluations-over-asyncio-step-themselves.md.

mod asyncio;
mod driver;
mod first;
mod forgotten;
mod interpreter;
mod proc;
mod waiter;

pub use asyncio::{Asyncio, forget_loop};
pub use driver::Driver;
pub use forgotten::begin_forgotten;
pub use interpreter::{Context, ask, call_with, is_unshared};
pub use proc::{ConcurrentProc, evaluate};
pub use waiter::Waiter;
