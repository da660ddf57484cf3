//! Service definitions of capyfile: where one is found, and the world that its parameters come from.

mod etcd;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::Document;
use thalweg_dialects::capyfile::{Environment, Phase, Request, Step};
use thalweg_engine::Graph;
use thalweg_net::fetch::Fetch;

use crate::exit::CliError;
use etcd::Etcd;

/// The variable with the address of the definition.
const URL: &str = "CAPYFILE_SERVICE_DEFINITION_URL";
/// The variable with its path.
const FILE: &str = "CAPYFILE_SERVICE_DEFINITION_FILE";
/// Where it is if nobody says anything.
const USUAL: &str = "/etc/capyfile/service-definition.json";

/// How long a server may take to give a definition.
const LONGEST: Duration = Duration::from_secs(30);
/// The largest definition that is fetched. They have some kilobytes.
const LARGEST: usize = 16 << 20;

/// The service definition: at the path that was given (`-` is the standard input), or where the environment says, or
/// where capyfile looks at last. The first of these that is set is taken, whether there is anything or not.
pub fn find(given: Option<&Path>) -> Result<Document, CliError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = given {
        return if path == Path::new("-") { standard_input() } else { open(path) };
    }
    if let Some(url) = set(URL) {
        let url = url.into_string().map_err(|_| CliError::Usage(format!("`{URL}` is not UTF-8 text")))?;
        return fetch(&url);
    }
    if let Some(path) = set(FILE) {
        return open(&PathBuf::from(path));
    }
    if Path::new(USUAL).exists() {
        return open(Path::new(USUAL));
    }
    Err(CliError::Usage(format!(
        "there is no service definition: give its path, or set `{URL}` or `{FILE}`; there is no `{USUAL}` either"
    )))
}

fn open(path: &Path) -> Result<Document, CliError> {
    Document::open(path).map_err(CliError::Mistakes)
}

fn standard_input() -> Result<Document, CliError> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    parse("standard input", bytes)
}

fn fetch(url: &str) -> Result<Document, CliError> {
    let shown = without_password(url);
    let text = Fetch::new(LONGEST, LARGEST).and_then(|client| wait(client.get(url)));
    let text = text.map_err(|error| {
        CliError::Failed(format!("the service definition at {shown} cannot be had: {}", error.full()))
    })?;
    parse(&shown, text)
}

fn parse(name: &str, text: Vec<u8>) -> Result<Document, CliError> {
    let text = String::from_utf8(text)
        .map_err(|_| CliError::Usage(format!("the service definition from {name} is not UTF-8 text")))?;
    Document::parse(name, &text).map_err(CliError::Mistakes)
}

/// An address as it may be shown.
fn without_password(url: &str) -> String {
    let hidden = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let at = rest.get(..end)?.rfind('@')?;
        Some(format!("{scheme}://{}", rest.get(at + 1..)?))
    });
    hidden.unwrap_or_else(|| url.to_owned())
}

/// Waits for an answer, wherever it is called: within a runtime, too, whose thread it then blocks.
fn wait<T: Send>(
    answer: impl Future<Output = Result<T, thalweg_engine::Error>> + Send,
) -> Result<T, thalweg_engine::Error> {
    let failed = |error| thalweg_engine::Error::permanent("cannot wait for an answer").caused_by(error);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(failed)?.block_on(answer)
        });
        let panicked = |_| Err(thalweg_engine::Error::permanent("asking over HTTP panicked"));
        waiting.join().unwrap_or_else(panicked)
    })
}

/// What of the world outlives a run or a request: how etcd is asked.
pub struct EtcdLookup {
    etcd: Option<Box<Ask>>,
}

type Ask = dyn Fn(&str) -> Result<Option<String>, String> + Send + Sync;

impl EtcdLookup {
    /// The world of this process.
    pub fn of_this_process() -> Result<Self, CliError> {
        let etcd = Etcd::of_the_environment(&|name| std::env::var(name).ok())?;
        Ok(Self { etcd: etcd.map(|etcd| -> Box<Ask> { Box::new(move |key| etcd.get(key)) }) })
    }
}

/// What the parameters of a definition are fetched from. Fetching them may block.
pub fn surroundings<'a>(world: &'a EtcdLookup, request: Option<&'a Request>) -> Environment<'a> {
    let etcd = world.etcd.as_deref().map(|ask| -> thalweg_dialects::capyfile::Etcd<'a> { ask });
    Environment { request, etcd, ..Environment::of_this_process() }
}

/// The operations of a phase by the names of their transforms.
pub fn steps(graph: &Graph, phase: &Phase) -> Vec<(Arc<str>, Step)> {
    let transforms = graph.pipeline(&phase.pipeline).map(|pipeline| pipeline.transforms.as_slice());
    let names = transforms.unwrap_or_default().iter().map(|transform| transform.name.clone());
    names.zip(phase.steps.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("https://me:secret@host/a@b"), "https://host/a@b");
        assert_eq!(without_password("https://host/a@b"), "https://host/a@b");
        assert_eq!(without_password("me:secret"), "me:secret");
    }
}
