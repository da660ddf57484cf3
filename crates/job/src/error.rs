//! Why a job cannot be loaded or run.

use std::io;

use thalweg_config::{Diagnostics, nearest};
use thalweg_engine::Error;

/// Why a configuration cannot become a job.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The configuration has mistakes.
    #[error("{0}")]
    Mistakes(Diagnostics),
    /// A text that has to be UTF-8 is not.
    #[error("{0} is not UTF-8 text")]
    NotText(String),
    /// The configuration and a source both want the standard input.
    #[error(
        "the configuration comes from the standard input, so the source `{source_name}` cannot read it; \
         put the configuration into a file"
    )]
    StdinTaken {
        /// The name of the source.
        source_name: String,
    },
    /// There is no pipeline of this name.
    #[error("there is no pipeline called `{name}`; {help}")]
    UnknownPipeline {
        /// The name.
        name: String,
        /// A similar name, or all names.
        help: String,
    },
    /// There is no processor of this name.
    #[error("there is no processor `{name}`; {help}")]
    UnknownProcessor {
        /// The name.
        name: String,
        /// A similar name, or all names.
        help: String,
    },
    /// Each processor of a service is a job, and none or several were chosen.
    #[error("`{document}` is a service; name one of its processors, for example `{example}`")]
    NoProcessorChosen {
        /// The name of the document.
        document: String,
        /// A valid name.
        example: String,
    },
    /// A service definition is needed, but the document is another configuration.
    #[error("`{document}` is not a service definition: {why}")]
    NoService {
        /// The name of the document.
        document: String,
        /// The missing part, and the correction.
        why: String,
    },
    /// A version of gollum was given for a configuration of another program.
    #[error("`--gollum` is for configurations of gollum, and this is none")]
    NotOfGollum,
    /// No path was given, and the environment names no service definition.
    #[error(
        "there is no service definition: give its path, or set `{url}` or `{file}`; there is no `{usual}` either"
    )]
    NotFound {
        /// The variable with its address.
        url: &'static str,
        /// The variable with its path.
        file: &'static str,
        /// The usual path.
        usual: &'static str,
    },
    /// The document has nothing to run.
    #[error("`{0}` has nothing to run")]
    Empty(String),
    /// An environment variable has an invalid value.
    #[error("{0}")]
    Variable(String),
    /// Options contradict each other, or have invalid values.
    #[error("{0}")]
    Options(String),
    /// A document could not be fetched over HTTP.
    #[error("the service definition at {url} cannot be fetched: {}", error.full())]
    Fetch {
        /// Its address, without a password.
        url: String,
        /// The reason.
        error: Error,
    },
    /// The caller stopped a copy while its source was listed.
    #[error("stopped while the source was listed, so nothing was copied")]
    Stopped,
    /// There is no object to copy.
    #[error("there is nothing to copy: `{0}` matches no object")]
    NothingToCopy(String),
    /// All that matches are links that are skipped, such as this one.
    #[error(
        "there is nothing to copy: `{0}` matches only links that lead out of it, such as `{1}`; `--symlinks files` \
         copies the files that they lead to"
    )]
    OnlyLinks(String, String),
    /// An obsolete directory cannot be removed.
    #[error("`{folder}` cannot be removed: {error}")]
    NotRemoved {
        /// The directory.
        folder: String,
        /// The reason.
        error: io::Error,
    },
    /// The engine or a component failed.
    #[error("{}", .0.full())]
    Engine(#[from] Error),
    /// The system failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl LoadError {
    /// True if the request is wrong, so that a retry would fail as well. False if a valid request failed.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::Fetch { .. }
                | Self::Stopped
                | Self::NothingToCopy(_)
                | Self::OnlyLinks(..)
                | Self::NotRemoved { .. }
                | Self::Engine(_)
                | Self::System(_)
        )
    }
}

impl From<Diagnostics> for LoadError {
    fn from(mistakes: Diagnostics) -> Self {
        Self::Mistakes(mistakes)
    }
}

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A phase could not start.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The run was aborted, and a component did not return.
    #[error("stopped: a component was still waiting for something")]
    Abandoned,
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Load(error.into())
    }
}

/// Suggests the known name that is most similar to an unknown one, or lists all.
#[must_use]
pub fn did_you_mean(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("there are: {}", known.join(", "))
        }
    }
}
