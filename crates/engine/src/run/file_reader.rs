//! One worker of a file reader.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use thalweg_record::{File, Meta, Outcome, Problem};
use thalweg_runtime::{Ticket, Worker};

use super::RunFailure;
use crate::component::{FileError, FileReader};
use crate::parcel::{Files, Parcel, bytes_of};
use crate::source_output::{OpenFile, Route, SourceOutput, give};
use crate::{Error, ErrorKind};

/// One worker of a file reader. It is a stage of its own: like a source, it waits for the budget and for room
/// while it reads.
pub(super) struct FileReaderWorker {
    pub(super) reader: Box<dyn FileReader>,
    pub(super) out: SourceOutput,
    /// The file that `out` sends the messages of.
    pub(super) open: Arc<Mutex<OpenFile>>,
    /// Where files go that cannot be read. The `errors` of a file reader are messages, so it is not there.
    pub(super) refused: Route,
}

impl Worker for FileReaderWorker {
    type Item = Files;
    type Error = RunFailure;

    /// It is held back in the middle of a file, like a source.
    const MOVES_ITEMS: bool = false;

    async fn take(&mut self, _: Ticket, files: Files) -> Result<(), RunFailure> {
        for file in files {
            self.read(file).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), RunFailure> {
        self.reader.finish().await;
        Ok(())
    }
}

impl FileReaderWorker {
    async fn read(&mut self, mut file: File) -> Result<(), RunFailure> {
        let name = self.out.name().clone();
        let bytes = bytes_of(&file);
        file.ack_mut().enter_with(&name, || (1, bytes));
        self.out.metrics.add_in(1, bytes);
        if file.problem().is_some() {
            // It was rejected before, with its reason, and carried here.
            return self.refuse(file).await;
        }
        let meta = meta_of(&file);
        {
            let mut open = self.open.lock();
            open.open(&file, meta);
            let done = if open.is_read() {
                Some(Outcome::Filtered)
            } else {
                self.out.may_stop(&open).then_some(Outcome::Unfinished)
            };
            if let Some(outcome) = done {
                if outcome == Outcome::Unfinished {
                    self.out.heed_stop();
                }
                open.close(outcome);
                drop(open);
                file.settle(outcome);
                return Ok(());
            }
        }
        let start = Instant::now();
        let read = self.reader.unpack(&mut file, &mut self.out).await;
        self.out.metrics.add_busy(start);
        self.close(file, read).await
    }

    /// Closes a file that was read, to its end or up to an error.
    async fn close(&mut self, mut file: File, read: Result<(), FileError>) -> Result<(), RunFailure> {
        let name = self.out.name().clone();
        let has_stopped = {
            let mut open = self.open.lock();
            let has_stopped = match &read {
                Err(FileError::Failed(error)) => self.out.may_stop(&open) && self.is_left(&open, error),
                _ => false,
            };
            match &read {
                Ok(()) => open.end(),
                Err(_) if has_stopped => open.close(Outcome::Unfinished),
                Err(_) => open.close(Outcome::Filtered),
            }
            has_stopped
        };
        match read {
            Ok(()) => {
                file.settle(Outcome::Filtered);
                Ok(())
            }
            Err(_) if has_stopped => {
                self.out.heed_stop();
                file.settle(Outcome::Unfinished);
                Ok(())
            }
            Err(FileError::Rejected(problem)) => {
                file.set_problem(Problem { component: name, ..problem });
                self.refuse(file).await
            }
            // A part of its messages may have been sent: a retry would send these again.
            Err(FileError::Failed(error)) if error.kind().is_temporary() => {
                file.set_problem(Problem { component: name, ..Problem::new(error.full()) });
                self.refuse(file).await
            }
            Err(FileError::Failed(error)) => {
                let error = error.context(format!("`{name}` failed at `{file}`"));
                Err(RunFailure::of(&self.out.metrics, error))
            }
        }
    }

    /// True if a file is left to a later run that was not read to its end while the run stops. A failure that
    /// stays would be one of each later run: this one says it.
    fn is_left(&self, open: &OpenFile, error: &Error) -> bool {
        // The stage behind the reader has failed and says why.
        open.is_left() || error.kind() != ErrorKind::Permanent || self.out.is_abandoned()
    }

    async fn refuse(&mut self, file: File) -> Result<(), RunFailure> {
        self.out.metrics.add_errors(1);
        let (targets, files) = (self.refused.files.as_deref().unwrap_or_default(), vec![file]);
        self.refused.pass(&files, files.items(), files.bytes());
        let given = give(targets, files, self.out.share.budget(), &self.out.traffic, self.out.name()).await;
        given.map_err(|error| RunFailure::of(&self.out.metrics, error))
    }
}

/// The metadata of the messages of a file that is read now.
fn meta_of(file: &File) -> Meta {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = file.origin();
    let path = origin.path.as_deref().unwrap_or(Path::new(&origin.name));
    Meta {
        source: origin.source.clone(),
        path: Some(path.to_string_lossy().into()),
        // A file that was changed or replaced has another identity.
        sequence: origin.identity().map(Into::into),
        time_us: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
        number: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use thalweg_record::{Budget, Content, Origin};
    use thalweg_runtime::Stop;
    use tokio::sync::mpsc;

    use super::*;
    use crate::positions::Positions;
    use crate::source_output::{Reading, Upstream};
    use crate::{Role, testing};

    /// Ends with this error, or with that of a message which it sends, while the run stops.
    struct Ending(Stop, Option<Error>);

    #[async_trait]
    impl FileReader for Ending {
        async fn unpack(&mut self, _: &mut File, out: &mut SourceOutput) -> Result<(), FileError> {
            self.0.request();
            if let Some(error) = self.1.take() {
                return Err(FileError::Failed(error));
            }
            let payload = testing::batch(["x"]).payload().clone();
            out.send(Reading { payload, path: None, positions: None, checkpoint: None }).await?;
            Ok(())
        }
    }

    /// Reads a file of which a later run could read the rest. Returns the failure.
    async fn failure(error: Option<Error>) -> Option<String> {
        let (failures, _failed) = mpsc::unbounded_channel();
        let source = Positions::new("in".into(), Role::Source, BTreeMap::new(), failures);
        let (ack, passage) = source.expect_in("l".into(), Some(1.into()), 1);
        let mut file =
            File::new(Origin::new("in".into(), "a".into(), 3).at("s3://b/a"), Content::from(vec![1, 2, 3]));
        file.ack_mut().merge(ack);
        file.set_passage(Some(passage));
        let (out, _main, _errors) = testing::file_output(&Budget::new(1 << 20), 1 << 10, &file);
        let Upstream::File(open) = out.upstream.clone() else { panic!("it is that of a file reader") };
        let reader = Box::new(Ending(out.stop.clone(), error));
        let mut worker = FileReaderWorker { reader, out, open, refused: Route::default() };
        let read = worker.read(file).await;
        read.err().map(|failure| failure.error.full())
    }

    #[tokio::test]
    async fn a_run_that_stops_leaves_a_file_and_says_what_would_fail_in_the_next_run_too() {
        assert_eq!(failure(None).await, None);
        assert_eq!(failure(Some(Error::temporary("it broke"))).await, None);
        let failed = failure(Some(Error::permanent("it broke"))).await.unwrap();
        assert!(failed.starts_with("`test` failed at `") && failed.ends_with(": it broke"), "{failed}");
    }
}
