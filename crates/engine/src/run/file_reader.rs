//! What reads messages out of files, at work.

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use thalweg_record::{File, Meta, Outcome, Parcel, Problem};
use thalweg_runtime::{Sender, Ticket, Worker};

use crate::Error;
use crate::component::{FileError, FileReader};
use crate::intake::FileOutput;
use crate::outlet::give;

use super::RunFailure;

/// One copy of it. It is a stage of its own: like a source, it waits for the budget and for room while it reads.
pub(super) struct FileReaderWorker {
    pub(super) reader: Box<dyn FileReader>,
    pub(super) out: FileOutput,
    /// Where a file goes that cannot be read: what takes its `errors` takes messages.
    pub(super) refused: Vec<Sender<Parcel>>,
}

impl Worker for FileReaderWorker {
    type Item = Parcel;
    type Error = RunFailure;

    async fn take(&mut self, _: Ticket, parcel: Parcel) -> Result<(), RunFailure> {
        let Parcel::Files(files) = parcel else {
            return Err(
                Error::permanent("messages came where files are taken; this is a bug of thalweg").into()
            );
        };
        for file in files {
            self.read(file).await?;
        }
        Ok(())
    }

    async fn finish(self) -> Result<(), RunFailure> {
        Ok(())
    }
}

impl FileReaderWorker {
    async fn read(&mut self, mut file: File) -> Result<(), RunFailure> {
        let name = self.out.metrics.name.clone();
        file.ack_mut().enter(&name);
        self.out.metrics.add_in(1, usize::try_from(file.size()).unwrap_or(usize::MAX));
        if file.problem().is_some() {
            // It was carried here: it was rejected before, with its reason.
            return self.refuse(file).await;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = file.origin().path.as_deref().unwrap_or(Path::new(&file.origin().name));
        let meta = Meta {
            source: file.origin().source.clone(),
            path: Some(path.to_string_lossy().into()),
            time_us: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
        };
        self.out.begin(&mut file, meta);
        let start = Instant::now();
        let read = self.reader.unpack(&mut file, &mut self.out).await;
        self.out.metrics.add_busy(start);
        self.out.end();
        match read {
            Ok(()) => {
                file.settle(Outcome::Filtered);
                Ok(())
            }
            Err(FileError::Rejected(problem)) => {
                file.set_problem(Problem { component: name, ..problem });
                self.refuse(file).await
            }
            // A part of its messages may have been sent: to begin with it anew would send these again.
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

    async fn refuse(&mut self, file: File) -> Result<(), RunFailure> {
        self.out.metrics.add_errors(1);
        let given = give(&self.refused, vec![file], self.out.share.budget(), self.out.name()).await;
        given.map_err(|error| RunFailure::of(&self.out.metrics, error))
    }
}
