//! A dry run: it shows what a run would write, and has no effects.
//!
//! The graph runs as it is, up to where it would write: each sink is replaced by one that prints a line of
//! JSON for each message or file, and each file transform with effects by one that prints the file and passes
//! it on. State is neither read nor written, and no position moves, so sources remove and acknowledge
//! nothing.
//!
//! An option of each sink was rejected: a sink that forgets it would write.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use thalweg_engine::{
    Context, DeadLetter, Disposition, Error, FileError, FileSink, FileTransform, FileTransformConfig, Graph,
    Naming, Rehearsal, Rejects, Sink, SinkConfig, Step, TransformConfig, WriteOutcome,
};
use thalweg_record::{Batch, File, Outcome};
use thalweg_redact::{redacted, visible_json};
use thalweg_runtime::blocking;
use thalweg_stream::encode::EncodeConfig;

use crate::job::Phase;

/// The kind of the replaced sinks: a run whose reader is gone ends without an error.
const KIND: &str = "stdout";

/// Prints what a run would write.
pub struct DryRun {
    output: Mutex<Box<dyn Write + Send>>,
}

impl fmt::Debug for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DryRun")
    }
}

impl DryRun {
    /// Prints to an output, a line for each message or file.
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>) -> Arc<Self> {
        Arc::new(Self { output: Mutex::new(output) })
    }

    /// Replaces what has effects in a phase.
    pub(crate) fn take_over(self: &Arc<Self>, phase: &mut Phase) {
        phase.state_dir.positions = false;
        phase.graph.remove_buffers();
        self.replace_transforms(&mut phase.graph);
        for sink in &mut phase.graph.sinks {
            let (name, config) = (sink.name.clone(), sink.config.clone());
            (sink.kind, sink.config) = (KIND, Arc::new(ShownSink { name, config, dry_run: self.clone() }));
        }
    }

    fn replace_transforms(self: &Arc<Self>, graph: &mut Graph) {
        for transform in graph.pipelines.iter_mut().flat_map(|pipeline| &mut pipeline.transforms) {
            if let Step::Files(config) = &transform.config
                && config.has_effects()
            {
                let shown = ShownFiles {
                    role: "transform",
                    name: transform.name.clone(),
                    config: config.clone(),
                    dry_run: self.clone(),
                };
                transform.config = Step::Files(Arc::new(shown));
            }
        }
    }

    fn print(&self, lines: &[u8]) -> Result<(), Error> {
        let lines = String::from_utf8_lossy(lines);
        let lines = visible_json(&lines);
        let mut output = self.output.lock();
        output.write_all(lines.as_bytes()).and_then(|()| output.flush()).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => {
                Error::reader_gone("the reader of the output has gone away").caused_by(error)
            }
            _ => Error::permanent("cannot write to the standard output").caused_by(error),
        })
    }

    fn print_line(&self, line: Map<String, Value>) -> Result<(), Error> {
        self.print(format!("{}\n", Value::Object(line)).as_bytes())
    }
}

impl Rehearsal for DryRun {
    fn rejected(&self, letter: &DeadLetter) {
        let mut line = Map::new();
        line.insert("rejected_by".to_owned(), letter.component.as_str().into());
        line.insert("reason".to_owned(), plain(&letter.reason));
        let origin = letter.path.as_ref().unwrap_or(&letter.source);
        line.insert("origin".to_owned(), plain(origin));
        let payload = letter.payload.as_ref().or(letter.payload_hex.as_ref());
        match (&letter.file, payload) {
            (Some(file), _) => line.insert("file".to_owned(), plain(&file.name)),
            (None, Some(payload)) => line.insert("message".to_owned(), payload.as_str().into()),
            (None, None) => None,
        };
        // A reader that is gone is noticed by the sinks.
        let _ = self.print_line(line);
    }
}

/// Returns a text without secrets, which an address or a path may have. A message is data, and stays.
fn plain(text: &str) -> Value {
    redacted(text).into()
}

/// Stands for a sink.
struct ShownSink {
    name: Arc<str>,
    config: Arc<dyn SinkConfig>,
    dry_run: Arc<DryRun>,
}

impl SinkConfig for ShownSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        serde_json::from_value::<EncodeConfig>(json!("json")).ok()?.encoder()
    }

    fn files(&self) -> Option<FileSink> {
        let shown = |files: FileSink| ShownFiles {
            role: "sink",
            name: self.name.clone(),
            config: files.0,
            dry_run: self.dry_run.clone(),
        };
        self.config.files().map(|files| FileSink(Arc::new(shown(files))))
    }

    fn takes_messages(&self) -> bool {
        self.config.takes_messages()
    }

    fn writes_stdout(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(MessageLines {
            start: format!("{{\"sink\":{}", json!(&*self.name)),
            naming: self.config.naming(),
            dry_run: self.dry_run.clone(),
            lines: Vec::new(),
        }))
    }
}

/// Prints messages.
struct MessageLines {
    /// The start of each line.
    start: String,
    naming: Option<Box<dyn Naming>>,
    dry_run: Arc<DryRun>,
    lines: Vec<u8>,
}

#[async_trait]
impl Sink for MessageLines {
    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        let names = self.naming.as_mut().map(|naming| naming.names(batch));
        self.lines.clear();
        for (row, message) in batch.payload().iter().enumerate() {
            self.lines.extend_from_slice(self.start.as_bytes());
            if let Some(name) = names.as_ref().and_then(|names| names.get(row)) {
                self.lines.extend_from_slice(format!(",\"to\":{}", plain(name)).as_bytes());
            }
            self.lines.extend_from_slice(b",\"message\":");
            self.lines.extend_from_slice(message.unwrap_or(b"null"));
            self.lines.extend_from_slice(b"}\n");
        }
        blocking(|| self.dry_run.print(&self.lines))?;
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Stands for a file sink, or for a file transform with effects.
#[derive(Clone)]
struct ShownFiles {
    role: &'static str,
    name: Arc<str>,
    config: Arc<dyn FileTransformConfig>,
    dry_run: Arc<DryRun>,
}

impl FileTransformConfig for ShownFiles {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl FileTransform for ShownFiles {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let mut line = Map::new();
        line.insert(self.role.to_owned(), (*self.name).into());
        if let Some(target) = self.config.target(file) {
            line.insert("to".to_owned(), plain(&target));
        }
        line.insert("file".to_owned(), plain(&file.to_string()));
        line.insert("bytes".to_owned(), file.size().into());
        blocking(|| self.dry_run.print_line(line))?;
        Ok(match self.config.removes_input() {
            true => Disposition::End(Outcome::Delivered),
            false => Disposition::Continue,
        })
    }

    fn only_reads(&self) -> bool {
        true
    }
}
