//! Collects the outcomes of a request's files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_dialects::capyfile::response::{Details, Processed, Rejected, message};
use thalweg_dialects::capyfile::{DONE, FAILED, Step};
use thalweg_engine::{FileEvent, FileWatcher};
use thalweg_files::URL;
use thalweg_files::mime;
use thalweg_record::{File, Origin};

/// The media type of a file that can no longer be read.
const UNKNOWN: &str = "application/octet-stream";

/// Collects the files that reach a sink. Files that end earlier, such as removed ones, are not part of the
/// answer.
pub(super) struct Watch {
    /// The operations, by the names of their transforms.
    steps: Vec<(Arc<str>, Step)>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The files in order. Holding them keeps their addresses distinct.
    order: Vec<Arc<Origin>>,
    ended: Vec<Ended>,
}

/// The outcome of a file, and its index in the order.
struct Ended {
    index: usize,
    result: Result<Processed, Rejected>,
}

impl Watch {
    pub(super) fn new(steps: Vec<(Arc<str>, Step)>) -> Self {
        Self { steps, seen: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the order of the files.
    pub(super) fn expect(&self, files: &[File]) {
        self.lock().order = files.iter().map(|file| file.origin().clone()).collect();
    }

    /// The files that reached a sink, in order: processed and rejected.
    pub(super) fn results(&self) -> (Vec<Processed>, Vec<Rejected>) {
        let mut ended = std::mem::take(&mut self.lock().ended);
        ended.sort_by_key(|file| file.index);
        let (mut processed, mut rejected) = (Vec::new(), Vec::new());
        for Ended { result, .. } in ended {
            match result {
                Ok(file) => processed.push(file),
                Err(file) => rejected.push(file),
            }
        }
        (processed, rejected)
    }

    fn end_of(&self, file: &File) -> Result<Processed, Rejected> {
        let origin = file.origin();
        // An upload has a name, and a file of a folder its path, as the pattern of the folder begins it.
        let original = origin.display().to_string();
        let mime = || mime::look(file).ok();
        let Some(problem) = file.problem() else {
            let mime = mime();
            let mime = mime.as_deref().unwrap_or(UNKNOWN);
            let name = match mime::extension(mime) {
                "" => origin.id().to_owned(),
                extension => format!("{}.{extension}", origin.id()),
            };
            let mut processed = Processed::new(name, original, mime.to_owned(), file.size());
            processed.url = file.note(URL).unwrap_or_default().to_owned();
            return Ok(processed);
        };
        let code = problem.code.unwrap_or("FILE_IS_UNREADABLE");
        let sizes = self.steps.iter().find(|(name, _)| *name == problem.component);
        let [least, largest] = sizes.map_or([None; 2], |(_, step)| step.sizes);
        let mime = if code == "FILE_MIME_TYPE_IS_NOT_ALLOWED" { mime() } else { None };
        let bound = if code == "FILE_SIZE_IS_TOO_SMALL" { least } else { largest };
        let said = message(code, Details { bound, mime: mime.as_deref() });
        tracing::info!(file = %original, code, "rejected: {}", problem.reason);
        Err(Rejected::new(original, code.to_owned(), said))
    }
}

impl FileWatcher for Watch {
    fn saw(&self, component: &Arc<str>, file: &File, event: FileEvent) {
        if !matches!(event, FileEvent::Ended(_)) || ![DONE, FAILED].contains(&&**component) {
            return;
        }
        let result = self.end_of(file);
        let mut seen = self.lock();
        let index = seen.order.iter().position(|origin| Arc::ptr_eq(origin, file.origin()));
        seen.ended.push(Ended { index: index.unwrap_or(usize::MAX), result });
    }
}
