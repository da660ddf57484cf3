//! Files whose first record names their columns.

use std::sync::Arc;

use arrow_array::Array;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::{Batch, Share, all_but};

use super::VALUE;
use crate::kept::Kept;
use thalweg_codec::columns::{Columns, Typing, missing, reject_all, shortened};
use thalweg_codec::csv::{Dialect, names};
use thalweg_codec::keys::bytes_of;
use thalweg_stream::pieces::Pieces;

/// The maximum number of files whose headers are remembered. Beyond it, the least recently seen is forgotten.
const MOST_PATHS: usize = 10_000;
/// The maximum memory of all remembered headers, in bytes. Beyond it, the least recently seen is forgotten.
const MOST_BYTES: usize = 16 << 20;
/// The bytes of a remembered file or column beside the text of its name.
const ENTRY: usize = 256;

/// The columns of each file. Files with the same header share one layout.
pub(super) struct Headers {
    paths: HashMap<Option<Arc<str>>, Known>,
    layouts: Vec<Layout>,
    clock: u64,
    typing: Typing,
    /// The bytes of paths and layouts, which count on the budget.
    bytes: usize,
    kept: Kept,
    /// True if a header was learned or forgotten since the state was last asked for.
    has_changed: bool,
}

struct Known {
    layout: Result<usize, String>,
    used: u64,
    /// The offset of the header in its file, if the source provides offsets.
    begins: Option<u64>,
}

struct Layout {
    names: Vec<String>,
    columns: Columns,
    files: usize,
}

impl Layout {
    /// The bytes that it takes. Its names are kept three times: here, in its columns and in their schema.
    fn bytes(names: &[String]) -> usize {
        names.iter().map(|name| ENTRY + 3 * name.len()).sum()
    }
}

/// The headers of a former run, least recently used first. Only those of files with offsets are kept: where
/// no offset tells the beginning of a file, the first record of a run is a header again.
#[derive(Serialize, Deserialize)]
struct Saved {
    layouts: Vec<Vec<String>>,
    files: Vec<SavedFile>,
}

#[derive(Serialize, Deserialize)]
struct SavedFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<Arc<str>>,
    begins: u64,
    /// The index of its layout, or the reason why its header could not be read.
    columns: Result<usize, String>,
}

impl Headers {
    /// Starts without any file. Its memory counts on the budget of `memory`.
    pub(super) fn new(typing: Typing, memory: &Share) -> Self {
        let (paths, layouts) = (HashMap::new(), Vec::new());
        Self { paths, layouts, clock: 0, typing, bytes: 0, kept: Kept::new(memory), has_changed: false }
    }

    /// Remembers the header of a file.
    fn learn(&mut self, path: Option<Arc<str>>, begins: Option<u64>, names: Result<Vec<String>, String>) {
        self.forget(&path);
        let layout = names.map(|names| {
            let known = self.layouts.iter().position(|layout| layout.names == names);
            known.unwrap_or_else(|| {
                self.bytes += Layout::bytes(&names);
                let columns = Columns::new(self.typing.clone(), &names);
                self.layouts.push(Layout { names, columns, files: 0 });
                self.layouts.len() - 1
            })
        });
        if let Ok(at) = layout
            && let Some(layout) = self.layouts.get_mut(at)
        {
            layout.files += 1;
        }
        self.bytes += bytes_of_path(&path);
        self.paths.insert(path, Known { layout, used: self.clock, begins });
        while self.paths.len() > MOST_PATHS || self.bytes > MOST_BYTES && self.paths.len() > 1 {
            let oldest = self.paths.iter().min_by_key(|(_, known)| known.used).map(|(path, _)| path.clone());
            oldest.iter().for_each(|oldest| self.forget(oldest));
        }
        self.has_changed |= begins.is_some();
        self.kept.set(self.bytes);
    }

    /// Drops the header of a file, and its layout, unless another file uses it.
    fn forget(&mut self, path: &Option<Arc<str>>) {
        let Some(known) = self.paths.remove(path) else { return };
        self.bytes -= bytes_of_path(path);
        let Ok(at) = known.layout else { return };
        let Some(layout) = self.layouts.get_mut(at) else { return };
        layout.files -= 1;
        if layout.files > 0 {
            return;
        }
        self.bytes -= Layout::bytes(&layout.names);
        // The last layout moves to its index.
        self.layouts.swap_remove(at);
        let moved = Ok(self.layouts.len());
        for known in self.paths.values_mut().filter(|known| known.layout == moved) {
            known.layout = Ok(at);
        }
    }

    /// Returns the columns of a file, or the reason why it has none.
    fn columns(&mut self, path: &Option<Arc<str>>) -> Result<&mut Columns, String> {
        let Some(known) = self.paths.get_mut(path) else {
            let of = path.as_deref().map(|path| format!(" of `{path}`")).unwrap_or_default();
            return Err(format!(
                "the header{of} was not read, because reading began after it: list its columns in `columns` in \
                 place of `header: true`, then replay these messages (`thalweg errors replay`)"
            ));
        };
        known.used = self.clock;
        let at = known.layout.clone().map_err(|reason| unreadable(&reason))?;
        let layout = self.layouts.get_mut(at).map(|layout| &mut layout.columns);
        layout.ok_or_else(|| "the columns of the file were forgotten too early; this is a bug".to_owned())
    }

    /// Returns what a later run must know, if that changed.
    fn state(&mut self) -> Option<serde_json::Value> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let mut files: Vec<_> = self.paths.iter().collect();
        files.sort_by_key(|(_, known)| known.used);
        let files = files.into_iter().filter_map(|(path, known)| {
            let (path, columns) = (path.clone(), known.layout.clone());
            Some(SavedFile { path, begins: known.begins?, columns })
        });
        let layouts = self.layouts.iter().map(|layout| layout.names.clone()).collect();
        serde_json::to_value(Saved { layouts, files: files.collect() }).ok()
    }

    /// Remembers the headers of a former run.
    fn restore(&mut self, saved: Saved) {
        for SavedFile { path, begins, columns } in saved.files {
            self.clock += 1;
            // A number without a layout cannot have been saved. Its file is then as one that was never seen.
            let names = columns.map(|at| saved.layouts.get(at).cloned());
            if let Some(names) = names.transpose() {
                self.learn(path, Some(begins), names);
            }
        }
        self.has_changed = false;
    }
}

fn bytes_of_path(path: &Option<Arc<str>>) -> usize {
    ENTRY + path.as_ref().map_or(0, |path| path.len())
}

fn unreadable(reason: &str) -> String {
    format!("the header could not be read: {}", shortened(reason))
}

/// Parses records whose columns are named by the first record of their file.
pub(super) struct WithHeader {
    pub(super) dialect: Dialect,
    pub(super) headers: Headers,
    pub(super) max_columns: usize,
    /// True if the messages are dead letters: the first of them is not the first of its file.
    pub(super) is_replay: bool,
    pub(super) field: String,
    pub(super) scratch: String,
    pub(super) pieces: Pieces,
}

impl WithHeader {
    /// Returns the offset of the batch's first record, and whether that record is a header.
    fn header(&self, batch: &Batch) -> (Option<u64>, bool) {
        let first = batch.positions().and_then(|positions| positions.values().first().copied());
        let path = &batch.meta().path;
        let known = self.headers.paths.get(path);
        let is_header = match first {
            // A file begins at offset 0, or at most 3 after a byte order mark. After a header of one or two
            // bytes, the second record begins there too.
            Some(first) if first <= 3 => {
                known.and_then(|known| known.begins).is_none_or(|begins| begins >= first)
            }
            Some(_) => known.is_none() && path.is_none() && !self.is_replay,
            None => known.is_none() && !self.is_replay,
        };
        (first, is_header)
    }

    /// Reads the header if the batch begins with one. Returns the other messages.
    fn begin(&mut self, batch: Batch, out: &mut Outputs) -> Result<Option<Batch>, Error> {
        let Some(input) = bytes_of(&batch, &self.field) else {
            reject_all(batch, &missing(&self.field), out)?;
            return Ok(None);
        };
        let (first, is_header) = self.header(&batch);
        if input.is_empty() || !is_header {
            return Ok(Some(batch));
        }
        let names = match input.is_null(0) {
            true => Err(missing(&self.field)),
            false => names(self.dialect, input.value(0), self.max_columns, &mut self.scratch),
        };
        // A header that cannot be read is kept: with other options, a replay reads it, and what follows it.
        let unread = names.as_ref().err().map(|reason| (0, unreadable(reason)));
        self.headers.learn(batch.meta().path.clone(), first, names);
        if unread.is_some() {
            return Ok(out.reject(batch, unread.into_iter().collect())?);
        }
        let others = all_but(batch.rows(), [0]);
        Ok(batch.filter(&others)?)
    }
}

impl Transform for WithHeader {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.pieces.push(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.pieces.take()
            && let Some(batch) = self.begin(batch, out)?
        {
            self.headers.clock += 1;
            match self.headers.columns(&batch.meta().path) {
                Ok(columns) => self.pieces.cut(batch, VALUE * columns.len()),
                Err(reason) => reject_all(batch, &reason, out)?,
            }
        }
        if let Some(piece) = self.pieces.next_piece() {
            match (bytes_of(&piece, &self.field), self.headers.columns(&piece.meta().path)) {
                (Some(input), Ok(columns)) => {
                    self.dialect.rows(&input, &self.field, columns, &mut self.scratch);
                    columns.finish(piece, out)?;
                }
                (None, _) => reject_all(piece, &missing(&self.field), out)?,
                (_, Err(reason)) => reject_all(piece, &reason, out)?,
            }
        }
        if !self.pieces.is_empty() {
            out.hold(std::time::Duration::ZERO);
        }
        Ok(())
    }

    fn state(&mut self) -> Option<serde_json::Value> {
        self.headers.state()
    }

    fn restore(&mut self, saved: serde_json::Value) -> Result<(), Error> {
        self.headers.restore(serde_json::from_value(saved).map_err(crate::unusable_state)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    #[test]
    fn headers_of_which_no_file_is_left_are_forgotten() {
        let mut headers = Headers::new(Typing::new(&Default::default(), None), &testing::context().memory);
        let names = |n: usize| Ok(vec![format!("a{n}"), "b".to_owned()]);
        headers.learn(Some("steady".into()), None, names(0));
        headers.learn(Some("broken".into()), None, Err("no".to_owned()));
        for n in 0..100 {
            headers.learn(Some("rotated".into()), None, names(n));
        }
        assert_eq!(headers.layouts.len(), 2);
        for n in 0..2 * MOST_PATHS {
            headers.clock += 1;
            headers.learn(Some(format!("{n}").into()), None, names(n % 7));
        }
        assert_eq!((headers.paths.len(), headers.layouts.len()), (MOST_PATHS, 7));
        for known in headers.paths.values() {
            assert!(known.layout.as_ref().is_ok_and(|&at| at < 7));
        }
    }
}
