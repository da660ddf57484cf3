//! Running a graph while a person watches: progress, signals, and what became of it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use thalweg_engine::{ErrorKind, FileWatcher, Graph, Handle, Plan, Run, SourceConfig, StateDir, Summary};
use thalweg_local::sources::internal_logs::InternalLogs;

use crate::exit::CliError;
use crate::log;
use crate::paint::Paint;
use crate::progress::{Progress, Retried, Watching};
use crate::serve::Server;

/// How to run and what to show.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// How many cores to use.
    pub cores: usize,
    /// Everything is told in JSON.
    pub json: bool,
    /// Nothing is told but errors.
    pub quiet: bool,
    /// Sinks add to what former runs wrote.
    pub continues: bool,
    /// Where to tell others how the run goes.
    pub listen: Option<SocketAddr>,
}

/// What became of a run.
pub struct Outcome {
    /// How it went.
    pub summary: Summary,
    /// What was tried again.
    pub retried: Retried,
}

impl Outcome {
    /// Whether it ended because nobody reads the standard output any more.
    pub fn nobody_reads(&self) -> bool {
        let failure = self.summary.failure.as_ref();
        failure.is_some_and(|failure| failure.error.kind() == ErrorKind::ReaderGone)
    }
}

/// How long an end at once may take before the process just ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a graph to its end. `watcher` sees what happens to each file.
pub fn drive(
    graph: &Graph,
    state_dir: StateDir,
    manner: RunOptions,
    watcher: Option<Arc<dyn FileWatcher>>,
) -> Result<Outcome, CliError> {
    let progress = Progress::new(graph, manner);
    let listens = graph.sources.iter().any(|source| source.kind == InternalLogs::NAME);
    log::begin(progress.bars(), manner.json, manner.quiet, listens)?;
    let run = Run::new(Plan::new(graph, manner.cores), state_dir)?;
    let run = if manner.continues { run.continuing() } else { run };
    let run = if let Some(watcher) = watcher { run.watched(watcher) } else { run };
    let handle = run.handle();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(manner.cores)
        .thread_name("thalweg")
        .enable_all()
        .build()?;
    let watching = progress.watch(handle.clone());
    let summary = runtime.block_on(async {
        if let Some(address) = manner.listen {
            let server = Server::bind(address, handle.clone()).await?;
            tell(&watching, manner, "listening", &format!("listening: http://{}/metrics", server.address()?));
            tokio::spawn(server.run());
        }
        let mut signals = Signals::new()?;
        let mut wait = pin!(run.wait());
        let mut received = 0;
        loop {
            tokio::select! {
                summary = &mut wait => break Ok::<_, CliError>(summary),
                signal = signals.next() => match signal {
                    Asked::ToEnd => {
                        received += 1;
                        heed(received, &handle, &watching, manner);
                    }
                    Asked::ToRoll => {
                        handle.reopen();
                        tell(&watching, manner, "rolling", "rolling: files are begun anew");
                    }
                },
                () = tokio::time::sleep(PATIENCE), if received > 1 => {
                    tell(&watching, manner, "stopped", "stopped: a component was still waiting for something");
                    std::process::exit(3);
                }
            }
        }
    });
    let retried = watching.end();
    // A thread may still wait for something that never comes, such as a line from a terminal.
    runtime.shutdown_background();
    Ok(Outcome { summary: summary?, retried })
}

/// Waits between two runs. Says whether a signal came meanwhile that asks to end.
pub fn pause(time: Duration) -> Result<bool, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut end = pin!(tokio::time::sleep(time));
        loop {
            tokio::select! {
                () = &mut end => break Ok(false),
                signal = signals.next() => if matches!(signal, Asked::ToEnd) { break Ok(true) },
            }
        }
    })
}

/// Does what a signal asks for, the first time and later.
fn heed(received: usize, handle: &Handle, watching: &Watching, manner: RunOptions) {
    if received == 1 {
        handle.stop();
        tell(
            watching,
            manner,
            "stopping",
            "stopping: what is on its way is delivered first; again to stop at once",
        );
    } else {
        handle.abort();
    }
}

fn tell(watching: &Watching, manner: RunOptions, event: &str, text: &str) {
    if manner.json {
        watching.say(&format!("{}\n", json!({ "event": event, "message": text })));
    } else if !manner.quiet {
        let paint = Paint::stderr();
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        // A terminal has written `^C` on this line.
        let start = if paint.is_on() { "\r" } else { "" };
        watching.say(&format!("{start}{}{rest}\n", paint.yellow(&format!("{word}:"))));
    }
}

/// What a signal asks for.
pub enum Asked {
    /// To end.
    ToEnd,
    /// To begin anew what is written.
    #[cfg(unix)]
    ToRoll,
}

/// The signals that ask for something.
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// From now on, they do not end the process.
    pub fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// What the next one asks for.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::ToEnd,
            _ = self.terminate.recv() => Asked::ToEnd,
            _ = self.hang_up.recv() => Asked::ToRoll,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// From now on, they do not end the process.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {})
    }

    /// What the next one asks for.
    pub async fn next(&mut self) -> Asked {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Asked::ToEnd
    }
}

#[cfg(test)]
mod tests {
    use thalweg_components::sinks::stdout::BROKEN_PIPE;
    use thalweg_engine::{Error, RunFailure};

    use super::*;

    fn outcome(error: Error) -> Outcome {
        let summary = Summary {
            components: Vec::new(),
            item: "message",
            elapsed: Duration::ZERO,
            budget_limit: 0,
            budget_peak: 0,
            dead_letters: 0,
            letters_dropped: 0,
            state_folder: std::path::PathBuf::new(),
            stopped: false,
            positions: std::collections::BTreeMap::new(),
            failure: Some(RunFailure::from(error)),
            undrained: None,
        };
        Outcome { summary, retried: Retried::default() }
    }

    #[test]
    fn an_error_that_only_quotes_the_words_of_a_closed_output_is_a_failure() {
        assert!(outcome(Error::reader_gone(BROKEN_PIPE).context("the sink `out` failed")).nobody_reads());
        let quoted = format!("the command `sync` ended with 1: {BROKEN_PIPE}");
        assert!(!outcome(Error::permanent(quoted)).nobody_reads());
    }
}
