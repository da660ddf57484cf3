//! `thalweg run` with a service definition of capyfile's.

use std::path::Path;
use std::sync::Arc;

use thalweg_config::Document;
use thalweg_dialects::capyfile::{self, events};
use thalweg_engine::{StateDir, read};

use crate::drive::drive;
use crate::exit::{CliError, Exit};
use crate::load::{did_you_mean, state_folder};
use crate::paint::Paint;
use crate::service::{self, EtcdLookup};
use crate::{print, summary};

use super::lines::Lines;
use super::{Arguments, Ended};

/// The definition, where the command line names it otherwise than by its path in the first place.
pub fn named(arguments: &Arguments) -> Result<Option<Document>, CliError> {
    if !is_named(arguments) {
        return Ok(None);
    }
    service::find(arguments.service_definition.as_deref()).map(Some)
}

fn is_named(arguments: &Arguments) -> bool {
    let text = arguments.config.to_string_lossy();
    // `service:processor` and no path.
    let is_processor = text.contains(':') && !text.contains('/') && !arguments.config.exists();
    arguments.service_definition.is_some() || is_processor
}

/// The processor that the command line names.
pub fn processor(arguments: &Arguments, document: &Document) -> Result<String, CliError> {
    let service = capyfile::service(document).map_err(CliError::Mistakes)?;
    let known: Vec<String> =
        service.processors.iter().map(|name| format!("{}:{name}", service.name)).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let first = arguments.config.to_string_lossy();
    let given: Vec<&str> = match is_named(arguments) {
        true => vec![&first],
        false => arguments.pipelines.iter().map(String::as_str).collect(),
    };
    let [named] = given[..] else {
        let example = known.first().copied().unwrap_or("service:processor");
        return Err(CliError::Usage(format!(
            "which processor is to run? Name one, as `thalweg run {} {example}`",
            document.name()
        )));
    };
    let processor = named.strip_prefix(&format!("{}:", service.name));
    match processor.filter(|processor| service.processors.iter().any(|known| known == processor)) {
        Some(processor) => Ok(processor.to_owned()),
        None => {
            Err(CliError::Usage(format!("there is no processor `{named}`; {}", did_you_mean(named, &known))))
        }
    }
}

/// Runs a processor: its phases one after the other.
pub fn run(arguments: &Arguments, document: &Document, processor: &str) -> Result<Ended, CliError> {
    let world = EtcdLookup::of_this_process()?;
    let phases = capyfile::read(document, Some(processor), service::surroundings(&world, None))
        .map_err(|wrong| CliError::Mistakes(wrong.into_diagnostics()))?;
    let name = capyfile::service(document).map_err(CliError::Mistakes)?.name;
    let speaks = !arguments.json && !arguments.quiet;
    let lines = Arc::new(Lines::new(speaks, Paint::stdout().is_on()));
    lines.say(&events::running(&name, processor));
    let folder = arguments.config.parent().map(Path::to_owned).unwrap_or_default();
    let (folder, positions) = state_folder(&folder, None, arguments.state.as_deref());
    let registry = thalweg_components::registry();
    let mut stopped = false;
    for (number, phase) in phases.iter().enumerate() {
        let mut graph = read(&phase.conversion.document, &registry).map_err(CliError::Mistakes)?;
        graph.memory = arguments.memory.unwrap_or(graph.memory);
        lines.begin(&graph, phase);
        // Each phase has sources of its own, of the same names as those of the others.
        let folder = folder.join(format!("{processor}-{}", number + 1));
        let mut manner = arguments.manner(positions);
        manner.quiet |= speaks;
        let outcome = drive(&graph, StateDir { folder, positions }, manner, Some(lines.clone()))?;
        if arguments.json {
            print::err(&format!("{}\n", summary::json(&outcome)));
        }
        if let Some(failure) = outcome.summary.failure {
            return Err(if arguments.json { CliError::AlreadyReported } else { failure.into() });
        }
        stopped = outcome.summary.stopped;
        if stopped {
            break;
        }
    }
    let failed = lines.end()?;
    let exit = if failed && !arguments.compat_exit_code { Exit::Errors } else { Exit::Done };
    Ok(Ended { exit, stopped })
}
