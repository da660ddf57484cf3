//! Runs the phases of a request's processor.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thalweg_dialects::capyfile::response::{self, Answer};
use thalweg_dialects::capyfile::{Input, LoadError, Phase, Step, read};
use thalweg_dialects::capyfile::{Operation, Request};
use thalweg_engine::{Plan, Run, RunFailure, StateDir};
use thalweg_job::steps;
use thalweg_net::upload::Upload;

use crate::server::Server;
use crate::uploads::Uploaded;
use crate::watch::Watch;

/// The state directory. It stays empty, because rejected files go to a sink.
const NOWHERE: &str = ".thalweg";

impl Server {
    /// Fetches the parameters of a processor, and runs it over files.
    pub(super) async fn process(
        self: Arc<Self>,
        processor: String,
        request: Request,
        files: Vec<Upload>,
    ) -> Answer {
        let server = self.clone();
        // Reading files and asking etcd block.
        let phases = tokio::task::spawn_blocking(move || {
            read(&server.document, Some(&processor), server.etcd.environment(Some(&request)))
        });
        let phases = match phases.await {
            Ok(Ok(phases)) => phases,
            Ok(Err(LoadError::Request(wrong))) => {
                let said: Vec<&str> = wrong.iter().map(|wrong| wrong.message.as_str()).collect();
                return response::invalid_request(&said.join("; "));
            }
            Ok(Err(LoadError::Operation { operation, message, .. })) => {
                return cannot_work(operation, &message);
            }
            Ok(Err(LoadError::Definition(wrong))) => {
                tracing::error!("the definition is wrong: {wrong}");
                return response::internal();
            }
            Err(error) => {
                tracing::error!("the parameters could not be fetched: {error}");
                return response::internal();
            }
        };
        let files: Arc<[Upload]> = files.into();
        let mut answer = response::result(&[], &[]);
        for phase in &phases {
            match self.run_phase(phase, &files).await {
                Ok((processed, rejected)) => answer = response::result(&processed, &rejected),
                Err(failed) => return failed,
            }
        }
        answer
    }

    async fn run_phase(
        &self,
        phase: &Phase,
        files: &Arc<[Upload]>,
    ) -> Result<(Vec<response::Processed>, Vec<response::Rejected>), Answer> {
        let mut graph =
            thalweg_engine::read(&phase.conversion.document, &self.registry).map_err(|wrong| {
                tracing::error!("the definition is wrong: {wrong}");
                response::internal()
            })?;
        graph.memory = self.settings.memory;
        let steps = steps(&graph, &phase.pipeline, &phase.steps);
        let watch = Arc::new(Watch::new(steps.clone()));
        let mut cores = self.settings.cores;
        if phase.input != Input::Files {
            let uploaded = Arc::new(Uploaded { files: files.clone(), watch: watch.clone() });
            graph.sources.iter_mut().for_each(|source| source.config = uploaded.clone());
            // More workers than files would be idle.
            cores = cores.min(files.len()).max(1);
        }
        let workers = u32::try_from(cores).unwrap_or(1).min(self.all_turns);
        let Ok(_turn) = self.turns.acquire_many(workers).await else { return Err(response::internal()) };
        let state_dir = StateDir { folder: PathBuf::from(NOWHERE), positions: false, owner: None };
        let run = Run::new(Plan::new(&graph, cores), state_dir).map_err(|error| {
            tracing::error!("{}", error.full());
            response::internal()
        })?;
        let run = run.watched(watch.clone()).within(self.budget.clone()).making(self.room.temporary.clone());
        let summary = run.wait().await;
        match summary.failure {
            None => Ok(watch.results()),
            Some(failure) => {
                tracing::error!(processor = %phase.processor, "failed: {failure}");
                Err(of_failure(&failure, &steps))
            }
        }
    }

    /// Counts a request until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }
}

/// A request in flight.
pub(super) struct UnderWay(Arc<Server>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The answer to a failed run. An operation that cannot work as configured has its own code.
fn of_failure(failure: &RunFailure, steps: &[(Arc<str>, Step)]) -> Answer {
    let named = steps.iter().find(|(name, _)| Some(name) == failure.component.as_ref());
    match named {
        Some((_, Step { operation, .. })) => {
            cannot_work(*operation, "the operation can not work as it is configured")
        }
        None => response::internal(),
    }
}

/// The answer if an operation cannot work as it is configured.
fn cannot_work(operation: Operation, message: &str) -> Answer {
    let code = format!("{}_OPERATION_CONFIGURATION", Operation::name(operation).to_uppercase());
    response::configuration(&code, message)
}

#[cfg(test)]
mod tests {
    use thalweg_engine::{Error, Role};

    use super::*;

    fn answered(failure: &RunFailure) -> String {
        let step =
            |operation| Step { component: "", operation, index: 0, sizes: [None, None], reports_end: true };
        let steps = [
            ("main.size".into(), step(Operation::FileSizeValidate)),
            ("main.time".into(), step(Operation::FileTimeValidate)),
        ];
        of_failure(failure, &steps).body
    }

    #[test]
    fn a_failure_is_that_of_its_component_although_its_text_quotes_another() {
        let error = Error::permanent("`main.time` failed: `main.size` is a folder");
        let failure = RunFailure { component: Some("main.time".into()), role: Some(Role::Transform), error };
        assert!(answered(&failure).contains("FILE_TIME_VALIDATE_OPERATION_CONFIGURATION"));
        let of_engine = RunFailure::from(Error::permanent("cannot save what `main.size` did"));
        assert!(answered(&of_engine).contains("INTERNAL"));
    }
}
