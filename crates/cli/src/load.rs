//! From the path on the command line to a checked graph.

use std::io::Read;
use std::path::{Path, PathBuf};

use thalweg_config::{Comments, Diagnostics, Document, nearest};
use thalweg_dialects::Conversion;
use thalweg_engine::{Graph, Registry};

use crate::exit::CliError;

/// The configuration that is read from the standard input.
const STDIN: &str = "-";
const STDIN_NAME: &str = "standard input";

/// A configuration as it was read.
pub struct Loaded {
    /// It, in thalweg's own form.
    pub document: Document,
    /// What there is beside it, if it was written in another.
    pub foreign: Option<Foreign>,
}

/// What reading another dialect gave beside the configuration.
pub struct Foreign {
    /// What to say where it is printed.
    pub comments: Comments,
    /// What means nothing here, or is meant otherwise.
    pub remarks: Diagnostics,
}

/// What the command line says of a configuration.
pub struct Configuration<'a> {
    /// Where it is; `-` for the standard input.
    pub path: &'a Path,
}

impl Configuration<'_> {
    /// Reads the text. What is in thalweg's own form gets its variables; other dialects know none, and are read into it.
    pub fn read(&self) -> Result<Loaded, CliError> {
        Self::loaded(self.open()?)
    }

    /// The same of a text that was read already.
    pub fn loaded(mut document: Document) -> Result<Loaded, CliError> {
        if let Some(conversion) = thalweg_dialects::read(&document) {
            let Conversion { document, comments, remarks } = conversion.map_err(CliError::Mistakes)?;
            return Ok(Loaded { document, foreign: Some(Foreign { comments, remarks }) });
        }
        let variables = |name: &str| std::env::var(name).ok();
        let mut diagnostics = document.diagnostics();
        document.substitute(&variables, &mut diagnostics);
        diagnostics.into_result(Loaded { document, foreign: None }).map_err(CliError::Mistakes)
    }

    /// Reads the text as it stands.
    pub fn open(&self) -> Result<Document, CliError> {
        if self.path != Path::new(STDIN) {
            return Document::open(self.path).map_err(CliError::Mistakes);
        }
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            CliError::Usage("the configuration on the standard input is not UTF-8 text".to_owned())
        })?;
        Document::parse(STDIN_NAME, &text).map_err(CliError::Mistakes)
    }

    /// Reads and checks the whole configuration.
    pub fn graph(&self, registry: &Registry) -> Result<Graph, CliError> {
        self.graph_of(&self.read()?, registry)
    }

    /// Checks what was read.
    pub fn graph_of(&self, loaded: &Loaded, registry: &Registry) -> Result<Graph, CliError> {
        let graph = thalweg_engine::read(&loaded.document, registry).map_err(CliError::Mistakes)?;
        let reads_stdin = graph.sources.iter().find(|source| source.kind == "stdin");
        match reads_stdin {
            Some(source) if self.path == Path::new(STDIN) => Err(CliError::Usage(format!(
                "the configuration comes from the standard input, so the source `{}` cannot read that; \
                 put the configuration into a file",
                source.name
            ))),
            _ => Ok(graph),
        }
    }

    /// The folder that it is in, as the one its `state` is relative to.
    pub fn folder(&self) -> PathBuf {
        self.path.parent().map(Path::to_owned).unwrap_or_default()
    }

    /// How it is called in messages.
    pub fn name(&self) -> String {
        if self.path == Path::new(STDIN) { STDIN_NAME.to_owned() } else { self.path.display().to_string() }
    }
}

/// Where positions and dead letters are kept, and whether positions are.
pub fn state_folder(folder: &Path, configured: Option<&Path>, given: Option<&Path>) -> (PathBuf, bool) {
    /// Dead letters of runs without a state folder.
    const HIDDEN: &str = ".thalweg";
    match (given, configured) {
        (Some(given), _) => (given.to_owned(), true),
        (None, Some(configured)) => (folder.join(configured), true),
        (None, None) => (folder.join(HIDDEN), false),
    }
}

/// Keeps only the pipelines that the command line names, if it names any.
pub fn restrict(graph: &mut Graph, names: &[String]) -> Result<(), CliError> {
    for name in names {
        if graph.pipeline(name).is_none() {
            let known: Vec<&str> = graph.pipelines.iter().map(|pipeline| &*pipeline.name).collect();
            return Err(CliError::Usage(format!(
                "there is no pipeline called `{name}`; {}",
                did_you_mean(name, &known)
            )));
        }
    }
    if !names.is_empty() {
        graph.restrict(names);
    }
    Ok(())
}

/// What to say of a name that is not known.
pub fn did_you_mean(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("there are: {}", known.join(", "))
        }
    }
}
