//! Checks a configuration and shows what is in it.

use serde_json::json;
use thalweg_engine::{Graph, Plan};
use thalweg_job::{Configuration, Job, LoadError, cores};
use thalweg_redact::redacted;

use crate::exit::{CommandError, Exit};
use crate::format::counted;
use crate::paint::Paint;
use crate::print;

/// How to show a checked configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct CheckOptions {
    /// True if the plan is shown.
    pub plan: bool,
    /// True if everything is printed as JSON.
    pub json: bool,
    /// The number of cores to plan for; those of this machine if `None`.
    pub threads: Option<usize>,
}

/// Checks an opened configuration, and prints a description of it. With `json`, its mistakes are printed on
/// the standard output.
///
/// # Errors
/// The mistakes, unless they were printed.
pub fn check(opened: Result<Configuration, LoadError>, options: &CheckOptions) -> Result<Exit, CommandError> {
    let job = match opened.and_then(|configuration| configuration.check(&thalweg_job::registry())) {
        Err(LoadError::Mistakes(mistakes)) if options.json => {
            let found = json!({ "file": mistakes.name(), "right": false, "mistakes": mistakes });
            print::out(&format!("{found}\n"))?;
            return Ok(Exit::Mistakes);
        }
        checked => checked?,
    };
    match options.json {
        true => print::out(&redacted(&format!("{}\n", json_of(&job, options))))?,
        false => print::show(&redacted(&text(&job, options)))?,
    }
    Ok(Exit::Done)
}

fn text(job: &Job, options: &CheckOptions) -> String {
    let paint = Paint::stdout();
    let mut text = shown(job, options, paint);
    for remark in job.remarks.iter().map(ToString::to_string) {
        for line in remark.lines() {
            text += &format!("{} {line}\n", paint.dim("remark:"));
        }
    }
    text
}

fn json_of(job: &Job, options: &CheckOptions) -> serde_json::Value {
    let graphs = || job.phases.iter().map(|phase| &phase.graph);
    let mut found = json!({ "file": job.name, "right": true, "mistakes": [] });
    if let Some(service) = &job.service {
        found["processors"] = json!(service.processors);
        found["remarks"] = json!(job.remarks);
    } else {
        let sum = |count: fn(&Graph) -> usize| graphs().map(count).sum::<usize>();
        found["sources"] = sum(|graph| graph.sources.len()).into();
        found["pipelines"] = sum(|graph| graph.pipelines.len()).into();
        found["sinks"] = sum(|graph| graph.sinks.len()).into();
        if let Some(remarks) = &job.remarks {
            found["remarks"] = json!(remarks);
        }
    }
    if options.plan {
        let cores = options.threads.unwrap_or_else(cores);
        found["graph"] = graphs().map(ToString::to_string).collect::<String>().into();
        found["plan"] = graphs().map(|graph| Plan::new(graph, cores).to_string()).collect::<String>().into();
    }
    found
}

/// Describes a job without mistakes, and with `plan` how it will run.
#[must_use]
pub fn described(job: &Job, options: &CheckOptions) -> String {
    shown(job, options, Paint::off())
}

fn shown(job: &Job, options: &CheckOptions, paint: Paint) -> String {
    let cores = options.threads.unwrap_or_else(cores);
    let Some(service) = &job.service else {
        return job
            .phases
            .iter()
            .map(|phase| whole(&job.name, &phase.graph, options.plan.then_some(cores), paint))
            .collect();
    };
    let processors = counted(service.processors.len() as u64, "processor");
    let mut text = format!("{} is valid: the service `{}` with {processors}.\n", job.name, service.name);
    for phase in job.phases.iter().filter(|_| options.plan) {
        let processor = phase.processor.as_deref().unwrap_or_default();
        let heading = paint.bold(&format!("{}:{processor}", service.name));
        text += &format!("\n{heading}\n{}", Plan::new(&phase.graph, cores));
    }
    text
}

fn whole(name: &str, graph: &Graph, plan_for: Option<usize>, paint: Paint) -> String {
    let mut text = format!(
        "{name} is valid: {}, {}, {}.\n",
        counted(graph.sources.len() as u64, "source"),
        counted(graph.pipelines.len() as u64, "pipeline"),
        counted(graph.sinks.len() as u64, "sink"),
    );
    if let Some(cores) = plan_for {
        let heading = |title: &str| format!("\n{}\n", paint.bold(title));
        text += &heading("Edges");
        text += &graph.to_string();
        text += &heading("How it will run");
        text += &Plan::new(graph, cores).to_string();
        for (pipeline, others) in graph.unbuffered_copies() {
            let others: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
            text += &format!(
                "\n{} {} of `{pipeline}` has no buffer on disk: while it does not work, nothing reaches the \
                 buffers beside it.\n",
                paint.yellow("remark:"),
                others.join(" and "),
            );
        }
    }
    text
}
