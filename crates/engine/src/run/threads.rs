//! The thread of each task.
//!
//! A task that waits runs on the workers of the runtime. A task that blocks (sources and sinks read and write
//! files) has a thread of its own for the whole run, so that what it wakes need not wait for it. A thread of
//! the runtime's blocking pool was rejected: that pool has 512 threads, so the 513th sink never ran, and the
//! run neither ended nor stopped. `block_in_place` around each write was rejected too: the threads multiply,
//! and each has memory that the budget does not see.
//!
//! Above [`MOST_THREADS`], sinks and workers of file segments share [`SHARED_THREADS`] threads instead. A
//! blocked task holds one of them; idle threads take over the tasks that are queued behind it.
//!
//! See docs/decisions/009-threads-for-tasks-that-block.md and
//! docs/decisions/061-long-lived-stages-have-threads-of-their-own.md.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use thalweg_runtime::lasting::{self, User};
use thalweg_runtime::{Alarm, Stop};
use tokio::runtime::{Builder, Handle as RuntimeHandle, Runtime};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::RunFailure;
use crate::Error;

/// At most this many tasks that could share threads have one each.
const MOST_THREADS: usize = 256;
/// The workers that more tasks share.
const SHARED_THREADS: usize = 64;
/// The stack of a thread, in bytes. A source calls all that it leads to in its own stack. Linux takes memory
/// only for what is used of it.
const STACK: usize = 2 << 20;
/// How long tasks may take to end at once. A thread that blocks for longer is left behind.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Where a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// On the workers of the runtime: it waits, but does not block.
    Runtime,
    /// On a thread of its own, however many there are: it may block for ever.
    OwnThread,
    /// On a thread of its own, or with many like it on shared ones: it blocks for moments.
    Thread,
}

type TaskFuture = Pin<Box<dyn Future<Output = Result<(), RunFailure>> + Send>>;

/// A part of a run, ready to be started.
pub(super) struct Task {
    component: Arc<str>,
    placement: Placement,
    future: TaskFuture,
}

impl Task {
    pub(super) fn new(
        component: Arc<str>,
        placement: Placement,
        future: impl Future<Output = Result<(), RunFailure>> + Send + 'static,
    ) -> Self {
        Self { component, placement, future: Box::pin(future) }
    }

    #[cfg(test)]
    pub(super) fn component(&self) -> &str {
        &self.component
    }

    #[cfg(test)]
    pub(super) fn placement(&self) -> Placement {
        self.placement
    }
}

/// The tasks of a run, under way. Dropped, it cancels them.
pub(super) struct Tasks {
    running: JoinSet<Result<(), RunFailure>>,
    components: HashMap<Id, Arc<str>>,
    /// The tasks on the runtime, which `end` does not reach.
    on_runtime: Vec<AbortHandle>,
    /// Requests the threads to end at once.
    end: Stop,
    shared: Option<SharedThreads>,
}

impl Tasks {
    /// Starts tasks in their order.
    ///
    /// # Errors
    /// If the system has no thread for one of them. Those started before have then ended.
    pub(super) async fn start(tasks: Vec<Task>) -> Result<Self, RunFailure> {
        let threads = tasks.iter().filter(|task| task.placement == Placement::Thread).count();
        let shared = if threads > MOST_THREADS { Some(SharedThreads::new()?) } else { None };
        let mut this = Self {
            running: JoinSet::new(),
            components: HashMap::new(),
            on_runtime: Vec::new(),
            end: Stop::default(),
            shared,
        };
        for task in tasks {
            if let Err(failure) = this.spawn(task) {
                // Their threads hold the store, which the next run needs.
                this.end().await;
                return Err(failure);
            }
        }
        Ok(this)
    }

    fn spawn(&mut self, Task { component, placement, future }: Task) -> Result<(), RunFailure> {
        let started = match (placement, &self.shared) {
            (Placement::Runtime, _) => {
                let started = self.running.spawn(future);
                self.on_runtime.push(started.clone());
                started
            }
            (Placement::Thread, Some(shared)) => {
                let task = shared.0.as_ref().map(|pool| {
                    let (user, task) = (User::of(pool.handle()), until(self.end.clone(), future));
                    pool.spawn(async move {
                        let ended = task.await;
                        drop(user);
                        ended
                    })
                });
                self.running.spawn(async move {
                    match task {
                        Some(task) => task.await.unwrap_or_else(not_ended),
                        None => Ok(()),
                    }
                })
            }
            (Placement::Thread | Placement::OwnThread, _) => {
                let ended = on_a_thread(&component, until(self.end.clone(), future))?;
                self.running.spawn(ended)
            }
        };
        self.components.insert(started.id(), component);
        Ok(())
    }

    /// Waits for the next task to end. None if all have ended.
    pub(super) async fn next(&mut self) -> Option<Result<(), RunFailure>> {
        let ended = self.running.join_next_with_id().await?;
        Some(match ended {
            Ok((id, result)) => {
                self.components.remove(&id);
                result
            }
            Err(error) => {
                self.components.remove(&error.id());
                not_ended(error)
            }
        })
    }

    /// The components whose tasks have not ended.
    pub(super) fn components(&self) -> Vec<Arc<str>> {
        let mut components: Vec<Arc<str>> = self.components.values().cloned().collect();
        components.sort();
        components.dedup();
        components
    }

    /// Ends all tasks at once. Waits for them, but not for a thread that stays blocked. Returns the number of
    /// such threads, which are left behind.
    pub(super) async fn end(mut self) -> usize {
        self.end.request();
        self.on_runtime.iter().for_each(AbortHandle::abort);
        let ended = async { while self.running.join_next().await.is_some() {} };
        if Alarm::within(PATIENCE, ended).await.is_none() {
            tracing::warn!("{} threads stay blocked and are left behind", self.running.len());
        }
        self.running.len()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.end.request();
    }
}

/// Runs a task until it ends, or until all tasks are to end at once.
async fn until(end: Stop, task: TaskFuture) -> Result<(), RunFailure> {
    tokio::select! {
        // After a blocking call returns late, the task must not begin anything new.
        biased;
        () = end.requested() => Ok(()),
        ended = task => ended,
    }
}

/// Starts a thread for a task. Returns a future of its result.
fn on_a_thread(
    component: &str,
    task: impl Future<Output = Result<(), RunFailure>> + Send + 'static,
) -> Result<impl Future<Output = Result<(), RunFailure>> + Send + 'static, RunFailure> {
    let (tell, ended) = oneshot::channel();
    let runtime = RuntimeHandle::current();
    let user = User::of(&runtime);
    // The system shows the first 15 bytes.
    let name = component.replace('\0', "");
    let started = thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
        let ended = runtime.block_on(task);
        drop(user);
        // The run may be over.
        let _ = tell.send(ended);
    });
    let thread = started.map_err(|error| no_thread(&format!("`{component}`"), error))?;
    // A thread that is left behind is not detached either.
    let thread = ManuallyDrop::new(thread);
    Ok(async move {
        let ended = ended.await;
        // The thread is about to exit. It is joined, not detached: glibc's `pthread_detach` reads the memory
        // of a thread that exits at the same moment, and crashes if that was unmapped (glibc bug 19951).
        let _ = ManuallyDrop::into_inner(thread).join();
        // The sender is dropped unused if the thread panics.
        ended.unwrap_or_else(|_| Err(panicked()))
    })
}

/// The threads that sinks and workers of file segments share if there are many.
struct SharedThreads(Option<Runtime>);

impl SharedThreads {
    fn new() -> Result<Self, RunFailure> {
        let mut builder = Builder::new_multi_thread();
        builder.on_thread_park(thalweg_runtime::idle::before_wait);
        builder.worker_threads(SHARED_THREADS).thread_name("thalweg-shared").thread_stack_size(STACK);
        match builder.enable_all().build() {
            Ok(runtime) => Ok(Self(Some(runtime))),
            Err(error) => Err(no_thread("the sinks and file transforms", error).into()),
        }
    }
}

impl Drop for SharedThreads {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which an async caller must not.
        if let Some(runtime) = self.0.take() {
            lasting::end(runtime);
        }
    }
}

fn no_thread(whose: &str, error: std::io::Error) -> Error {
    Error::permanent(format!(
        "the system has no thread for {whose}; raise the limit of threads (`ulimit -u`), or use fewer sources and sinks"
    ))
    .caused_by(error)
}

fn panicked() -> RunFailure {
    Error::permanent("a component panicked; this is a bug of thalweg").into()
}

/// The result of a task that did not end by itself: it panicked or was cancelled.
pub(super) fn not_ended(error: JoinError) -> Result<(), RunFailure> {
    if error.is_panic() { Err(panicked()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(placement: Placement, future: impl Future<Output = ()> + Send + 'static) -> Task {
        Task::new("out".into(), placement, async {
            future.await;
            Ok(())
        })
    }

    async fn results(mut tasks: Tasks) -> Vec<Result<(), String>> {
        let mut results = Vec::new();
        while let Some(result) = tasks.next().await {
            results.push(result.map_err(|failure| failure.to_string()));
        }
        results
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_is_a_failure_wherever_the_task_runs() {
        let all = [Placement::Runtime, Placement::OwnThread, Placement::Thread];
        let tasks = all.map(|placement| task(placement, async { panic!("on purpose") }));
        let panicked = Err("a component panicked; this is a bug of thalweg".to_owned());
        assert_eq!(results(Tasks::start(tasks.into()).await.unwrap()).await, vec![panicked.clone(); 3]);
        let many = (0..=MOST_THREADS).map(|_| task(Placement::Thread, async { panic!("on purpose") }));
        let results = results(Tasks::start(many.collect()).await.unwrap()).await;
        assert_eq!(results, vec![panicked; MOST_THREADS + 1]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn few_tasks_have_a_thread_each_and_many_share_some() {
        for (count, expected) in [(MOST_THREADS, MOST_THREADS), (2_000, SHARED_THREADS)] {
            let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
            let tasks = (0..count).map(|_| {
                let tell = tell.clone();
                task(Placement::Thread, async move { tell.send(thread::current().id()).unwrap() })
            });
            let tasks = Tasks::start(tasks.collect()).await.unwrap();
            drop(tell);
            assert_eq!(results(tasks).await.len(), count);
            let mut threads = std::collections::HashSet::new();
            while let Some(thread) = seen.recv().await {
                threads.insert(thread);
            }
            assert!(threads.len() <= expected, "{} threads", threads.len());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_bears_the_name_of_its_component() {
        let (tell, name) = oneshot::channel();
        let named = task(Placement::Thread, async move {
            drop(tell.send(thread::current().name().map(str::to_owned)));
        });
        assert_eq!(results(Tasks::start(vec![named]).await.unwrap()).await, [Ok(())]);
        assert_eq!(name.await.unwrap().as_deref(), Some("out"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tasks_end_at_once_and_a_blocked_thread_is_left_behind() {
        let (_release, blocked) = std::sync::mpsc::channel::<()>();
        let all = [Placement::Runtime, Placement::OwnThread, Placement::Thread];
        let mut tasks: Vec<Task> = all.map(|placement| task(placement, std::future::pending())).into();
        let tasks_that_wait = Tasks::start(std::mem::take(&mut tasks)).await.unwrap();
        assert_eq!(tasks_that_wait.components(), ["out".into()]);
        assert_eq!(tasks_that_wait.end().await, 0);
        let (tell, is_blocked) = oneshot::channel();
        tasks.push(task(Placement::Thread, async move {
            tell.send(()).unwrap();
            let _ = blocked.recv();
        }));
        let tasks = Tasks::start(tasks).await.unwrap();
        is_blocked.await.unwrap();
        assert_eq!(tasks.end().await, 1);
    }
}
