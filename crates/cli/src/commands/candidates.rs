//! The values of arguments that a shell completes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};
use thalweg_config::Document;
use thalweg_engine::is_name;
use thalweg_job::functions;

/// The endings of configurations.
const ENDINGS: [&str; 5] = ["yaml", "yml", "json", "conf", "config"];
/// The starts of the URLs of stores.
#[cfg(feature = "stores")]
const SCHEMES: [&str; 7] = ["s3://", "gs://", "az://", "https://", "http://", "webdavs://", "webdav://"];
/// The largest configuration that is read while a shell waits, in bytes.
const LARGEST: u64 = 1 << 20;

/// The names of components.
pub fn components() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let registry = thalweg_job::registry();
        let all = registry
            .iter()
            .map(|known| CompletionCandidate::new(known.name).help(Some(known.summary().into())));
        all.collect()
    })
}

/// The names of functions.
pub fn function_names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        functions().iter().map(|function| CompletionCandidate::new(function.name)).collect()
    })
}

/// Configurations, and the folders that may have some.
pub fn configurations() -> ArgValueCompleter {
    let is_one = |path: &Path| {
        path.is_dir()
            || path.extension().and_then(OsStr::to_str).is_some_and(|ending| ENDINGS.contains(&ending))
    };
    ArgValueCompleter::new(PathCompleter::any().filter(is_one))
}

/// The pipelines of the configuration on the command line.
pub fn pipelines() -> ArgValueCandidates {
    ArgValueCandidates::new(|| named_configuration().map(|path| pipelines_of(&path)).unwrap_or_default())
}

/// The configuration on the command line: its first argument that is a file with such an ending.
fn named_configuration() -> Option<PathBuf> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    paths.find(|path| {
        let ending = path.extension().and_then(OsStr::to_str);
        ending.is_some_and(|ending| ENDINGS.contains(&ending)) && path.is_file()
    })
}

fn pipelines_of(path: &Path) -> Vec<CompletionCandidate> {
    if std::fs::metadata(path).map_or(true, |found| found.len() > LARGEST) {
        return Vec::new();
    }
    let Ok(document) = Document::open(path) else { return Vec::new() };
    let pipelines = document.root().get("pipelines").map(|pipelines| pipelines.entries());
    let names = pipelines.into_iter().flatten().map(|(key, _)| &key.name);
    // A configuration may be one that others wrote.
    names.filter(|name| is_name(name)).map(CompletionCandidate::new).collect()
}

/// Paths, and the schemes of stores.
#[cfg(feature = "stores")]
pub fn objects() -> ArgValueCompleter {
    use clap_complete::engine::ValueCompleter;

    ArgValueCompleter::new(|current: &OsStr| {
        let given = current.to_str().unwrap_or_default();
        let schemes = SCHEMES.iter().filter(|scheme| !given.is_empty() && scheme.starts_with(given));
        let schemes = schemes.map(|scheme| CompletionCandidate::new(*scheme));
        schemes.chain(PathCompleter::any().complete(current)).collect()
    })
}
