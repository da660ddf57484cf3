//! The line that says which limits a run has found, and what follows from them.

use thalweg_job::{Job, Limits, descriptor_limit};

use crate::format::{bytes, count, counted};

/// Returns the line: `limits: 64 MiB in flight, 2 threads, 1,024 open files; the container has 128 MiB and
/// 1.5 processors`.
pub(crate) fn line(job: &Job, cores: usize) -> String {
    let budget = job.phases.iter().map(|phase| phase.graph.memory.bytes()).max().unwrap_or_default();
    let files = descriptor_limit().map_or_else(|| "any number of".to_owned(), count);
    let threads = counted(cores as u64, "thread");
    let Limits { memory, processors } = Limits::of_this_process();
    let memory = memory.map(bytes);
    let processors = processors.map(|processors| format!("{processors} processors"));
    let found: Vec<String> = memory.into_iter().chain(processors).collect();
    let container = match found.join(" and ") {
        none if none.is_empty() => "there is no limit of a container".to_owned(),
        found => format!("the container has {found}"),
    };
    format!("limits: {} in flight, {threads}, {files} open files; {container}", bytes(budget))
}
