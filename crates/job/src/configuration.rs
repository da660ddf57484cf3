//! A configuration: a document of some dialect, and where it came from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use thalweg_config::{Diagnostics, Document, Span};
use thalweg_dialects::{Converted, Dialect, Selection, Service, dialects, foreign, gollum, recognise};
use thalweg_engine::{Graph, Registry, StateDir, check_memory, read, read_checked, remarks};
use thalweg_net::fetch::{Fetch, Redirects};
use thalweg_redact::without_secrets;

use crate::environment::{EtcdLookup, FETCH_TIMEOUT, wait};
use crate::error::{LoadError, did_you_mean};
use crate::history::ConfigurationId;
use crate::identity::Identity;
use crate::job::{Job, Overrides, Phase, restrict};
use crate::limits::Limits;

/// The path that stands for the standard input.
const STDIN: &str = "-";
const STDIN_NAME: &str = "standard input";

/// The variable with the address of a service definition.
const URL: &str = "CAPYFILE_SERVICE_DEFINITION_URL";
/// The variable with its path.
const FILE: &str = "CAPYFILE_SERVICE_DEFINITION_FILE";
/// Its path where neither is set.
const USUAL: &str = "/etc/capyfile/service-definition.json";

/// Where a service definition is read from.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Url(OsString),
    Path(PathBuf),
}

/// Returns the first place that is set: a path, the URL or path in the environment, capyfile's usual path.
/// Only the last of them must exist.
fn place_of(
    given: Option<&Path>,
    set: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Option<Place> {
    let path = |path: &Path| Place::Path(path.to_owned());
    given
        .map(path)
        .or_else(|| set(URL).map(Place::Url))
        .or_else(|| set(FILE).map(|file| Place::Path(file.into())))
        .or_else(|| Some(Path::new(USUAL)).filter(|usual| exists(usual)).map(path))
}

/// A document, its dialect and its path.
pub struct Configuration {
    document: Document,
    dialect: &'static dyn Dialect,
    path: PathBuf,
    /// `state` is relative to this folder.
    folder: PathBuf,
}

impl Configuration {
    /// Recognises the dialect of a document. `path` is where the document came from: `-` for the standard
    /// input, empty if it has no file.
    #[must_use]
    pub fn new(document: Document, path: &Path) -> Self {
        Self::in_one_of(dialects(), document, path)
    }

    /// Like [`new`](Self::new), with a list of dialects.
    #[must_use]
    pub fn in_one_of(dialects: &[&'static dyn Dialect], document: Document, path: &Path) -> Self {
        let dialect = recognise(dialects, &document);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Self { document, dialect, path: path.to_owned(), folder }
    }

    /// The same for a known version of gollum.
    ///
    /// # Errors
    /// If it is not a configuration of gollum.
    pub fn as_gollum(self, version: gollum::Version) -> Result<Self, LoadError> {
        if !gollum::is_gollum(&self.document) {
            return Err(LoadError::NotOfGollum);
        }
        Ok(Self { dialect: gollum::Gollum::of(version), ..self })
    }

    /// Reads a file, or the standard input if the path is `-`.
    ///
    /// # Errors
    /// If it cannot be read, or is not YAML.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let document = if path == Path::new(STDIN) {
            standard_input("the configuration on the standard input")?
        } else {
            Document::open(path).map_err(foreign::explained)?
        };
        Ok(Self::new(document, path))
    }

    /// Reads the service definition from a path, else from the URL or path in the environment, else from
    /// capyfile's usual path. The first of these that is set is used, even if nothing exists there.
    ///
    /// # Errors
    /// If it cannot be read or is not YAML, or if none of these is set.
    pub fn find(given: Option<&Path>) -> Result<Self, LoadError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        // The state directory of such a definition is in the current directory.
        let found = |document, path: &Path| Ok(Self { folder: PathBuf::new(), ..Self::new(document, path) });
        match place_of(given, set, Path::exists) {
            None => Err(LoadError::NotFound { url: URL, file: FILE, usual: USUAL }),
            Some(Place::Url(url)) => {
                let url = url.into_string().map_err(|_| LoadError::NotText(format!("`{URL}`")))?;
                found(fetch(&url)?, Path::new(""))
            }
            Some(Place::Path(path)) if path == Path::new(STDIN) && given.is_some() => Self::open(&path),
            Some(Place::Path(path)) => found(Document::open(&path)?, &path),
        }
    }

    /// Opens the configuration that a command line names. Returns it with the names of the pipelines or the
    /// processor to run.
    ///
    /// `path` may also be `service:processor`. The definition is then `definition` or, without that, the one
    /// that [`find`](Self::find) finds.
    ///
    /// # Errors
    /// If it cannot be read or is not YAML, if no definition is found, or if there are names beside a
    /// processor.
    pub fn given(
        path: &Path,
        names: &[String],
        definition: Option<&Path>,
    ) -> Result<(Self, Vec<String>), LoadError> {
        let first = path.to_string_lossy();
        let is_name = first.contains(':') && !first.contains('/') && !path.exists();
        if is_name || definition.is_some() {
            if !names.is_empty() {
                let text = "a service runs one processor: leave out the other names";
                return Err(LoadError::Options(text.to_owned()));
            }
            return Ok((Self::find(definition)?, vec![first.into_owned()]));
        }
        Ok((Self::open(path)?, names.to_vec()))
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        self.document.name()
    }

    /// The document as it was written.
    #[must_use]
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Its dialect.
    #[must_use]
    pub fn dialect(&self) -> &'static dyn Dialect {
        self.dialect
    }

    /// The file that it was read from, if it was.
    pub(crate) fn file(&self) -> Option<&Path> {
        Some(&*self.path).filter(|path| !self.is_stdin() && !path.as_os_str().is_empty())
    }

    /// True if it was read from the standard input.
    #[must_use]
    pub fn is_stdin(&self) -> bool {
        self.path == Path::new(STDIN)
    }

    /// The processors of a service, each of which is a job; `None` if the configuration is one job.
    ///
    /// # Errors
    /// The mistakes of the configuration.
    pub fn service(&self) -> Result<Option<Service>, LoadError> {
        Ok(self.dialect.service(&self.document)?)
    }

    /// The configuration in thalweg's own form, with variables and parameters from this process's
    /// environment.
    ///
    /// # Errors
    /// The mistakes of the configuration.
    pub fn converted(&self, selection: Selection<'_>) -> Result<Converted, LoadError> {
        let etcd = EtcdLookup::when_asked();
        Ok(self.dialect.read(&self.document, etcd.environment(None), selection)?)
    }

    /// Builds the job. Of a service, `overrides` names the processor.
    ///
    /// # Errors
    /// The mistakes of the configuration, and unknown names in `overrides`.
    pub fn job(&self, registry: &Registry, overrides: &Overrides) -> Result<Job, LoadError> {
        let service = self.service()?;
        let processor =
            service.as_ref().map(|service| self.processor(service, &overrides.names)).transpose()?;
        if let Some(processor) = &processor {
            self.dialect.refuse_requests(&self.document, processor)?;
        }
        let selection = processor.as_deref().map_or(Selection::All, Selection::Processor);
        let mut job = self.job_of(registry, service, selection, overrides)?;
        for phase in job.phases.iter_mut().filter(|phase| phase.processor.is_none()) {
            restrict(&mut phase.graph, &overrides.names)?;
        }
        job.processor = processor;
        Ok(job)
    }

    /// Builds everything that can be checked: the job or, of a service, all processors that need no request.
    ///
    /// # Errors
    /// The mistakes of the configuration.
    pub fn check(&self, registry: &Registry) -> Result<Job, LoadError> {
        let service = self.service()?;
        self.job_of(registry, service, Selection::WithoutRequest, &Overrides::default())
    }

    /// Where a run keeps dead letters. Only `state` has to be valid in the configuration.
    ///
    /// # Errors
    /// The mistakes that prevent reading `state`.
    pub fn state_dir(&self, given: Option<&Path>) -> Result<StateDir, LoadError> {
        let identity = self.identity()?;
        if given.is_some() || self.service()?.is_some() {
            return Ok(identity.state_dir(&self.folder, None, given));
        }
        let converted = self.converted(Selection::All)?;
        let root = converted.phases.first().map(|phase| phase.document.root());
        let state = root.and_then(|root| root.get("state")?.as_str()).map(Path::new);
        Ok(identity.state_dir(&self.folder, state, None))
    }

    fn identity(&self) -> Result<Identity, LoadError> {
        if self.is_stdin() || self.path.as_os_str().is_empty() {
            return Ok(match self.name() {
                name if name.contains("://") => Identity::of_address(name),
                name => Identity::unknown(name),
            });
        }
        Ok(Identity::of_file(&self.path)?)
    }

    fn job_of(
        &self,
        registry: &Registry,
        service: Option<Service>,
        selection: Selection<'_>,
        overrides: &Overrides,
    ) -> Result<Job, LoadError> {
        let converted =
            self.converted(selection).map_err(|error| self.with_other_mistakes(error, registry))?;
        let identity = self.identity()?;
        let mut found_remarks = converted.remarks;
        let mut phases = Vec::new();
        let configuration = ConfigurationId::new(self.name(), self.document.text());
        for (number, found) in converted.phases.into_iter().enumerate() {
            // In a converted configuration, a step without effect is none of the user's mistakes.
            let read = if self.dialect.is_native() { read_checked } else { read };
            let mut graph = read(&found.document, registry)?;
            self.refuse_stdin_twice(&graph)?;
            graph.memory = match overrides.memory {
                Some(memory) => memory,
                None if found.document.root().get("memory").is_some() => graph.memory,
                None => Limits::of_this_process().usual_memory(),
            };
            check_memory(&found.document, &graph)?;
            if self.dialect.is_native() {
                found_remarks.extend(remarks(&found.document, &graph));
            }
            let (configured, given) = (graph.state.as_deref(), overrides.state.as_deref());
            let mut state_dir = identity.state_dir(&self.folder, configured, given);
            if let Some(processor) = &found.processor {
                // The phases have sources of the same names, so each phase gets its own folder.
                state_dir.folder.push(format!("{processor}-{}", number + 1));
            }
            let (processor, operations) = (found.processor, found.operations);
            let configuration = Some(configuration.clone());
            let document = Some(found.document);
            phases.push(Phase { graph, state_dir, processor, operations, configuration, document });
        }
        let is_shown = |found: &Diagnostics| !self.dialect.is_native() || !found.is_empty();
        let remarks = Some(found_remarks).filter(is_shown);
        Ok(Job { name: self.name().to_owned(), service, processor: None, phases, remarks })
    }

    /// Adds the mistakes that a document has beside variables that are not set. Those at such a variable are
    /// left out: its value is not known.
    fn with_other_mistakes(&self, error: LoadError, registry: &Registry) -> LoadError {
        let LoadError::Mistakes(mut mistakes) = error else { return error };
        if self.dialect.is_native() {
            let unset: Vec<Span> = mistakes.iter().map(|mistake| mistake.span).collect();
            let mut document = self.document.clone();
            let etcd = EtcdLookup::when_asked();
            document.substitute(etcd.environment(None).variable, &mut document.diagnostics());
            let others = read(&document, registry).err();
            let contains = |span: Span, of: &Span| span.start <= of.start && of.end <= span.end;
            for other in others.iter().flat_map(Diagnostics::iter) {
                if !unset.iter().any(|of| contains(other.span, of)) {
                    mistakes.push(other.clone());
                }
            }
        }
        LoadError::Mistakes(mistakes)
    }

    fn refuse_stdin_twice(&self, graph: &Graph) -> Result<(), LoadError> {
        let reads = graph.sources.iter().find(|source| source.config.reads_stdin());
        match reads {
            Some(source) if self.is_stdin() => {
                Err(LoadError::StdinTaken { source_name: source.name.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Finds the processor of a name `service:processor`.
    fn processor(&self, service: &Service, names: &[String]) -> Result<String, LoadError> {
        let known: Vec<String> =
            service.processors.iter().map(|name| format!("{}:{name}", service.name)).collect();
        let [named] = names else {
            let example = known.first().map_or("service:processor", String::as_str).to_owned();
            return Err(LoadError::NoProcessorChosen { document: self.name().to_owned(), example });
        };
        let processor = named.strip_prefix(&format!("{}:", service.name));
        let processor = processor.filter(|wanted| service.processors.iter().any(|known| known == wanted));
        processor.map(str::to_owned).ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            LoadError::UnknownProcessor { name: named.clone(), help: did_you_mean(named, &known) }
        })
    }
}

fn standard_input(what: &str) -> Result<Document, LoadError> {
    let bytes = Document::read(std::io::stdin().lock())?;
    let text = String::from_utf8(bytes).map_err(|_| LoadError::NotText(what.to_owned()))?;
    Ok(Document::parse(STDIN_NAME, &text)?)
}

fn fetch(url: &str) -> Result<Document, LoadError> {
    let name = without_secrets(url);
    let fetched = Fetch::new(FETCH_TIMEOUT, Document::MAX_BYTES, Redirects::Followed)
        .and_then(|client| wait(client.get(url)));
    let bytes = fetched.map_err(|error| LoadError::Fetch { url: name.clone(), error })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| LoadError::NotText(format!("the service definition from {name}")))?;
    Ok(Document::parse(&name, &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_looked_for_where_capyfile_looks() {
        let path = |path: &str| Some(Place::Path(path.into()));
        let place = |given: Option<&str>, variables: &[&str], exists| {
            let set = |name: &str| variables.contains(&name).then(|| OsString::from(name.to_lowercase()));
            place_of(given.map(Path::new), set, |place| exists && place == Path::new(USUAL))
        };
        assert_eq!(place(Some("a.json"), &[URL, FILE], true), path("a.json"));
        assert_eq!(place(None, &[URL, FILE], true), Some(Place::Url(URL.to_lowercase().into())));
        assert_eq!(place(None, &[FILE], true), path("capyfile_service_definition_file"));
        assert_eq!(place(None, &[], true), path("/etc/capyfile/service-definition.json"));
        assert_eq!(place(None, &[], false), None);
    }
}
