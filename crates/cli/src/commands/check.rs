//! `thalweg check`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use thalweg_config::{Diagnostics, Document};
use thalweg_dialects::capyfile::{self, Environment};
use thalweg_engine::{Graph, Plan};

use crate::exit::{CliError, Exit};
use crate::format::counted;
use crate::load::Configuration;
use crate::paint::Paint;
use crate::print;

/// Says everything that is wrong with a configuration, and runs nothing.
///
/// Each mistake is shown with its line, what is wrong and what would be right. With `--plan`, a configuration that is
/// right is shown as it will run. What means nothing in a configuration of another program (see `convert`) is remarked.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg check logs.yaml
  thalweg check logs.yaml --plan
  thalweg check logs.yaml --json | jq '.mistakes[].message'")]
pub struct Arguments {
    /// The configuration; `-` reads it from the standard input.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Show what leads where, and how it will run: what is one call, where queues stand, how many copies.
    #[arg(long)]
    plan: bool,
    /// Print the mistakes (and counts, if there are none) as one JSON object on the standard output.
    #[arg(long)]
    json: bool,
    /// Show the plan for so many cores. Without it, for those that there are.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CliError> {
    let configuration = Configuration { path: &arguments.config };
    let registry = thalweg_components::registry();
    let document = match configuration.open() {
        Ok(document) if capyfile::is_capyfile(&document) => {
            return Service { configuration: &configuration, document }.check(arguments);
        }
        opened => opened,
    };
    let read = document.and_then(Configuration::loaded).and_then(|loaded| {
        let graph = configuration.graph_of(&loaded, &registry)?;
        Ok((graph, loaded.foreign.map(|foreign| foreign.remarks)))
    });
    let (graph, remarks) = match read {
        Err(CliError::Mistakes(diagnostics)) if arguments.json => {
            let found = json!({ "file": diagnostics.name(), "right": false, "mistakes": diagnostics });
            print::out(&format!("{found}\n"))?;
            return Ok(Exit::LoadError);
        }
        other => other?,
    };
    let cores = arguments.threads.map_or_else(super::cores, usize::from);
    let plan = Plan::new(&graph, cores);
    let text = if arguments.json {
        let mut found = json!({
            "file": configuration.name(),
            "right": true,
            "mistakes": [],
            "sources": graph.sources.len(),
            "pipelines": graph.pipelines.len(),
            "sinks": graph.sinks.len(),
        });
        if let Some(remarks) = &remarks {
            found["remarks"] = json!(remarks);
        }
        if arguments.plan {
            found["graph"] = graph.to_string().into();
            found["plan"] = plan.to_string().into();
        }
        format!("{found}\n")
    } else {
        let mut text = shown(&configuration.name(), &graph, arguments.plan.then_some(&plan), Paint::stdout());
        for remark in remarks
            .iter()
            .flat_map(|remarks| remarks.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            text += &format!("{} {remark}\n", Paint::stdout().dim("remark:"));
        }
        text
    };
    print::out(&text)?;
    Ok(Exit::Done)
}

/// A service definition of capyfile's.
struct Service<'a> {
    configuration: &'a Configuration<'a>,
    document: Document,
}

impl Service<'_> {
    fn check(self, arguments: &Arguments) -> Result<Exit, CliError> {
        let name = self.configuration.name();
        let (remarks, graphs) = match self.graphs() {
            Err(CliError::Mistakes(diagnostics)) if arguments.json => {
                let found = json!({ "file": diagnostics.name(), "right": false, "mistakes": diagnostics });
                print::out(&format!("{found}\n"))?;
                return Ok(Exit::LoadError);
            }
            other => other?,
        };
        let service = capyfile::service(&self.document).map_err(CliError::Mistakes)?;
        let cores = arguments.threads.map_or_else(super::cores, usize::from);
        if arguments.json {
            let processors = &service.processors;
            let found = json!({
                "file": name, "right": true, "mistakes": [], "processors": processors, "remarks": remarks,
            });
            print::out(&format!("{found}\n"))?;
            return Ok(Exit::Done);
        }
        let processors = counted(service.processors.len() as u64, "processor");
        let mut text = format!("{name} is right: the service `{}` with {processors}.\n", service.name);
        for (processor, graph) in graphs.iter().filter(|_| arguments.plan) {
            let plan = Plan::new(graph, cores);
            text += &format!("\n{}\n{plan}", Paint::stdout().bold(&format!("{}:{processor}", service.name)));
        }
        for remark in remarks.to_string().lines() {
            text += &format!("{} {remark}\n", Paint::stdout().dim("remark:"));
        }
        print::out(&text)?;
        Ok(Exit::Done)
    }

    /// What is to be remarked, and the graphs of the processors that need no request.
    fn graphs(&self) -> Result<(Diagnostics, Vec<(String, Graph)>), CliError> {
        let surroundings = Environment::of_this_process();
        let remarks = capyfile::check(&self.document, surroundings).map_err(CliError::Mistakes)?;
        let service = capyfile::service(&self.document).map_err(CliError::Mistakes)?;
        let registry = thalweg_components::registry();
        let mut graphs = Vec::new();
        for processor in &service.processors {
            if capyfile::needs_request(&self.document, processor) {
                continue;
            }
            let phases = capyfile::read(&self.document, Some(processor), surroundings)
                .map_err(|wrong| CliError::Mistakes(wrong.into_diagnostics()))?;
            for phase in phases {
                let graph = thalweg_engine::read(&phase.conversion.document, &registry)
                    .map_err(CliError::Mistakes)?;
                graphs.push((processor.clone(), graph));
            }
        }
        Ok((remarks, graphs))
    }
}

/// Says of a configuration that it is right, and with a plan how it will run.
pub fn shown(name: &str, graph: &Graph, plan: Option<&Plan>, paint: Paint) -> String {
    let mut text = format!(
        "{name} is right: {}, {}, {}.\n",
        counted(graph.sources.len() as u64, "source"),
        counted(graph.pipelines.len() as u64, "pipeline"),
        counted(graph.sinks.len() as u64, "sink"),
    );
    if let Some(plan) = plan {
        let heading = |title: &str| format!("\n{}\n", paint.bold(title));
        text += &heading("What leads where");
        text += &graph.to_string();
        text += &heading("How it will run");
        text += &plan.to_string();
    }
    text
}
