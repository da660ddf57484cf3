//! `thalweg convert`.

use std::path::PathBuf;

use clap::Args;
use thalweg_config::Document;
use thalweg_dialects::Conversion;
use thalweg_dialects::capyfile::{self, Environment};

use super::new::write_new;
use crate::exit::{CliError, Exit};
use crate::load::Configuration;
use crate::print;

/// Prints a configuration of another program in thalweg's own form.
///
/// gollum's configurations (also those of its old form, a list of plugins) and capyfile's service definitions run as they are: this shows what runs, to go on
/// from there. Comments say where a meaning had to be chosen, and what means nothing here.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg convert gollum.conf
  thalweg convert gollum.conf --output logs.yaml && thalweg run logs.yaml
  thalweg convert service.yml photos:archive")]
pub struct Arguments {
    /// The configuration; `-` reads it from the standard input.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Of a service definition, only this processor: `service:processor`, or its name alone. Without it, all.
    #[arg(value_name = "PROCESSOR")]
    processor: Option<String>,
    /// Write it to this file, which must not exist. Without it, it goes to the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CliError> {
    let configuration = Configuration { path: &arguments.config };
    let name = configuration.name();
    let document = configuration.open()?;
    if capyfile::is_capyfile(&document) {
        return put(arguments, &of_service(&name, &document, arguments.processor.as_deref())?);
    }
    if arguments.processor.is_some() {
        return Err(CliError::Usage(format!("`{name}` is no service definition: it has no processors")));
    }
    let loaded = Configuration::loaded(document)?;
    let Some(foreign) = &loaded.foreign else {
        return Err(CliError::Usage(format!("`{name}` is in thalweg's own form already")));
    };
    // What would not run is not printed either, and its mistakes are shown where they were made. That a configuration from
    // the standard input cannot read that as well is no mistake in it.
    thalweg_engine::read(&loaded.document, &thalweg_components::registry()).map_err(CliError::Mistakes)?;
    let mut text = format!("# {name}, in thalweg's own form.\n");
    let body = thalweg_config::write(loaded.document.root(), &foreign.comments);
    if !body.starts_with('#') {
        text.push('\n');
    }
    text += &body;
    put(arguments, &text)
}

fn put(arguments: &Arguments, text: &str) -> Result<Exit, CliError> {
    match &arguments.output {
        None => print::out(text)?,
        Some(path) => {
            write_new(path, text)?;
            let shown = path.display();
            print::err(&format!("wrote {shown}; `thalweg run {shown}` runs it\n"));
        }
    }
    Ok(Exit::Done)
}

/// A service definition of capyfile's: a document for each run that it takes.
fn of_service(name: &str, document: &Document, processor: Option<&str>) -> Result<String, CliError> {
    let service = capyfile::service(document).map_err(CliError::Mistakes)?;
    let processor = processor.map(|name| name.strip_prefix(&format!("{}:", service.name)).unwrap_or(name));
    let phases = capyfile::read(document, processor, Environment::of_this_process())
        .map_err(|wrong| CliError::Mistakes(wrong.into_diagnostics()))?;
    let mut text = String::new();
    for (number, phase) in phases.iter().enumerate() {
        if number > 0 {
            text.push_str("---\n");
        }
        let Conversion { document, comments, .. } = &phase.conversion;
        let what = format!("`{}` of {}, in thalweg's own form", phase.processor, name);
        text += &format!("# {what}.\n\n{}", thalweg_config::write(document.root(), comments));
    }
    Ok(text)
}
