//! Prints a configuration of another program in thalweg's own form.

use std::path::Path;

use thalweg_dialects::Selection;
use thalweg_job::{Configuration, LoadError};

use crate::exit::{CommandError, Exit};
use crate::print;
use crate::write_new::write_new;

/// Prints a configuration in thalweg's own form, or writes it to a new file. Of a service, `processor`
/// selects one.
///
/// # Errors
/// Its mistakes, or if it is in thalweg's own form already.
pub fn convert(
    configuration: &Configuration,
    processor: Option<&str>,
    output: Option<&Path>,
) -> Result<Exit, CommandError> {
    let text = text(configuration, processor)?;
    match output {
        None => print::out(&text)?,
        Some(path) => write_new(path, &text)?,
    }
    Ok(Exit::Done)
}

fn text(configuration: &Configuration, processor: Option<&str>) -> Result<String, CommandError> {
    let name = configuration.name();
    let service = configuration.service()?;
    let prefix = service.as_ref().map(|service| format!("{}:", service.name));
    let selection = match (processor, &prefix) {
        (None, _) => Selection::All,
        (Some(given), Some(prefix)) => Selection::Processor(given.strip_prefix(prefix).unwrap_or(given)),
        (Some(_), None) => {
            let why = "it has no processors".to_owned();
            return Err(LoadError::NoService { document: name.to_owned(), why }.into());
        }
    };
    if configuration.dialect().is_native() {
        return Err(CommandError::Usage(format!("`{name}` is in thalweg's own form already")));
    }
    let mut text = String::new();
    for phase in configuration.converted(selection)?.phases {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        let body = thalweg_config::write(phase.document.root(), &phase.comments);
        match &phase.processor {
            Some(processor) => {
                text += &format!("# `{processor}` of {name}, in thalweg's own form.\n\n{body}")
            }
            None => {
                // A configuration that would not run is not printed. `Configuration::check` is not used here,
                // because it rejects a source `stdin` if the configuration itself came from the standard
                // input.
                let graph = thalweg_engine::read(&phase.document, &thalweg_job::registry())
                    .map_err(LoadError::from)?;
                // Other programs accept steps without effect, so the written configuration does.
                let accepts = match thalweg_engine::check_fields(&phase.document, &graph) {
                    Ok(()) => "",
                    Err(_) => "unknown_fields: accept\n",
                };
                let gap = if body.starts_with('#') { "" } else { "\n" };
                text += &format!("# {name}, in thalweg's own form.\n{gap}{accepts}{body}");
            }
        }
    }
    Ok(text)
}
