//! Runs a command for each file.
//!
//! [`thalweg_stream::command`] runs the command. This module builds its arguments and decides what happens to
//! the file afterwards.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Cost, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
    Temporaries,
};
use thalweg_record::{Content, File, FileState, Temporary};
use thalweg_stream::command::{Command, check_environment};

use crate::content::{put_on_disk, unreadable};
use crate::file_template::{FileTemplate, Variable};

const FAILED: &str = "COMMAND_EXECUTION_ERROR";
/// The error code of files whose command succeeded, but left no output.
const UNREADABLE: &str = "FILE_IS_UNREADABLE";
const NOT_RENDERED: &str = "COMMAND_TEMPLATE_CAN_NOT_BE_RENDERED";

/// Runs a command for each file.
///
/// No shell is involved: each argument reaches the command exactly as it is, even if a file's name contains
/// spaces, quotes or other bytes. The standard input of the command is empty. If the command exits with a
/// code other than 0, the file is rejected, and the reason contains the end of the command's output.
///
/// The command and all processes that it started are killed if it exceeds `timeout`, and if the run is
/// stopped or killed. When the command ends, the processes that it left behind are killed. A process that
/// left the command's process group (`setsid`) stays. If the run is killed on a machine without `sh`, only
/// the command is killed.
///
/// If a template contains `{path}`, a file that is only in memory, or on a server, is first written to a
/// temporary file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The command: a path, or a name that is looked up in the folders of `PATH`.
    #[schemars(example = &"cwebp")]
    command: FileTemplate,
    /// The arguments, with properties of the file in braces, which the page "Configuration" lists. Names may
    /// begin with a dash: write `--` before an argument that is not a whole path, if the command supports it.
    /// The default is none.
    #[serde(default)]
    #[schemars(example = ["-o", "/tmp/{id}.webp", "{path}"])]
    args: List<FileTemplate>,
    /// The path to which the command writes its result. The file then has that content and that name. By
    /// default the file continues, with the changes that the command makes to it in its place.
    output: Option<FileTemplate>,
    /// How the file at `output` is treated when the run no longer needs it. The default is `keep`.
    #[serde(default)]
    output_cleanup: Cleanup,
    /// The maximum duration of the command. By default there is no limit.
    #[schemars(example = "30s")]
    timeout: Option<TimeSpan>,
    /// Variables to add to the environment that thalweg itself has.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The directory in which the command runs. A relative `output` starts there too. The default is the
    /// directory of thalweg.
    directory: Option<PathBuf>,
    /// True to run only one command at a time. The default is `false`: many run at once.
    #[serde(default)]
    one_at_a_time: bool,
    /// How much of the end of a failing command's output is shown in the reason. The default is 64 KiB.
    #[serde(default = "enough")]
    max_output_bytes: ByteSize,
}

/// How the file at `output` is treated afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Cleanup {
    /// The file stays.
    #[default]
    Keep,
    /// The file is removed, also if the command fails.
    Remove,
}

fn enough() -> ByteSize {
    ByteSize(64 << 10)
}

impl Component for Exec {
    const NAME: &'static str = "exec";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/*.jpg" } }
pipelines:
  main:
    from: photos
    transforms:
      - exec:
          command: cwebp
          args: ["-q", "80", "{path}", "-o", "/tmp/{id}.webp"]
          output: /tmp/{id}.webp
          output_cleanup: remove
          timeout: 1m
      - rename_file: { to: "{original_stem}.webp" }
    to: converted
sinks:
  converted: { directory: { path: converted } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.command.is_empty() {
            mistakes.push(Mistake::new("command", "The command has no name."));
        }
        if self.output.as_ref().is_some_and(FileTemplate::is_empty) {
            mistakes.push(
                Mistake::new("output", "The path of the result is empty.")
                    .help("Leave `output` out if there is none."),
            );
        }
        if self.output.is_none() && self.output_cleanup == Cleanup::Remove {
            let help = "Give the path of the result as `output`.";
            mistakes.push(Mistake::new("output_cleanup", "There is no `output` to remove.").help(help));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            mistakes
                .push(Mistake::new("timeout", "`timeout` cannot be 0.").help("Leave it out for no limit."));
        }
        mistakes.extend(check_environment(self.env.keys()));
        mistakes
    }
}

impl FileTransformConfig for Exec {
    fn cost(&self) -> Cost {
        if self.one_at_a_time { Cost::Alone } else { Cost::Waits }
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Running { options: self.clone(), temporary: context.temporary.clone() }))
    }
}

struct Running {
    options: Exec,
    temporary: Temporaries,
}

#[async_trait]
impl FileTransform for Running {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let options = &self.options;
        let templates = || [&options.command].into_iter().chain(&options.args).chain(&options.output);
        if templates().any(|template| template.uses(Variable::Path)) {
            put_on_disk(file, &self.temporary)?;
        }
        let before = metadata(file)?.as_ref().and_then(state);
        let mut render = |template: &FileTemplate| template.render(file).map_err(not_rendered);
        let program = render(&options.command)?;
        let arguments = options.args.iter().map(&mut render).collect::<Result<Vec<OsString>, FileError>>()?;
        let output = options.output.as_ref().map(&mut render).transpose()?;
        if program.is_empty() || output.as_ref().is_some_and(|output| output.is_empty()) {
            let which = if program.is_empty() { "command" } else { "path of its output" };
            return Err(FileError::coded(NOT_RENDERED, format!("the {which} is empty for this file")));
        }
        let output = output.map(|output| match &options.directory {
            Some(directory) => directory.join(output),
            None => PathBuf::from(output),
        });
        // Held from here on: a partial result is then removed too if the command fails or is killed.
        let removed = output
            .as_ref()
            .filter(|output| options.output_cleanup == Cleanup::Remove && !is_of(file, output));
        let removed = removed.map(|output| Temporary::new(output.clone()));
        let origin = file.origin().clone();
        // Changes of the file while the command runs count as its work: `follow` does not send it again.
        let is_changed = is_found(file, output.as_deref().or(file.path()).unwrap_or(Path::new("")));
        let change = is_changed.then(|| origin.begin_change());
        let command = Command {
            environment: options.env.clone().into_iter().collect(),
            directory: options.directory.clone(),
            timeout: options.timeout.map(|timeout| timeout.0),
            max_output_bytes: usize::try_from(options.max_output_bytes.0).unwrap_or(usize::MAX),
            ..Command::new(program, arguments)
        };
        command.run().await.map_err(|failure| failure.into_file_error(FAILED))?;
        match output {
            Some(output) => {
                let found = take_output(file, &command, output, removed, options.output_cleanup)?;
                if let Some(change) = change {
                    change.end(FileState::of(&found));
                }
            }
            None => {
                // The command may have changed the file in place. If the command removed the file, that was
                // its purpose.
                if let Some(after) = metadata(file).ok().flatten() {
                    if state(&after) != before {
                        file.set_content(file.content().clone(), after.len());
                    }
                    if let Some(change) = change {
                        change.end(FileState::of(&after));
                    }
                }
            }
        }
        Ok(Disposition::Continue)
    }
}

/// Returns the metadata of the file at its path, or `None` if it has no path.
fn metadata(file: &File) -> Result<Option<fs::Metadata>, FileError> {
    file.path().map(fs::metadata).transpose().map_err(|error| unreadable(&error))
}

/// Returns its size and modification time.
fn state(found: &fs::Metadata) -> Option<(u64, std::time::SystemTime)> {
    Some((found.len(), found.modified().ok()?))
}

/// Reports every rejection by a template as a template that cannot be rendered. Failures to read the file
/// stay as they are.
fn not_rendered(error: FileError) -> FileError {
    match error {
        FileError::Rejected(problem) if problem.code.is_none() => {
            FileError::Rejected(problem.code(NOT_RENDERED))
        }
        other => other,
    }
}

/// True if a path is that of the file as it is or as it was found: it must not be removed early.
fn is_of(file: &File, output: &Path) -> bool {
    file.path().is_some_and(|path| is_same(path, output)) || is_found(file, output)
}

/// True if a path is that of the file as it was found.
fn is_found(file: &File, output: &Path) -> bool {
    file.origin().path.as_deref().is_some_and(|path| is_same(path, output))
}

/// Gives the file the content that the command wrote. Returns its metadata.
fn take_output(
    file: &mut File,
    command: &Command,
    output: PathBuf,
    removed: Option<Arc<Temporary>>,
    cleanup: Cleanup,
) -> Result<fs::Metadata, FileError> {
    let program = command.program.display();
    let found = fs::metadata(&output).map_err(|error| {
        let output = output.display();
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("`{program}` succeeded, but did not create `{output}`, the path in `output`")
            }
            _ => format!("the result of `{program}` at `{output}` cannot be read: {error}"),
        };
        FileError::coded(UNREADABLE, reason)
    })?;
    if !found.is_file() {
        let reason = format!("the result of `{program}` at `{}` is not a file", output.display());
        return Err(FileError::coded(UNREADABLE, reason));
    }
    let name = output.file_name().map(OsString::from);
    let content = match (file.content(), removed) {
        (_, Some(temporary)) => Content::Temporary(temporary),
        // The command changed the file in place, so the result must stay when the previous content is
        // dropped.
        (Content::Temporary(held), None) if is_same(held.path(), &output) => Content::Temporary(held.clone()),
        (_, None) if cleanup == Cleanup::Remove => Content::Temporary(Temporary::new(output)),
        (_, None) => Content::Path(output),
    };
    file.set_content(content, found.len());
    if let Some(name) = name {
        file.set_name(name);
    }
    Ok(found)
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests;
