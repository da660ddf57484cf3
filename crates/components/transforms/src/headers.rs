//! The columns of files that name them themselves, in a header.
//!
//! They are remembered for each file, within bounds, and for a later run.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_codec::columns::{Columns, Typing, shortened};
use thalweg_engine::Error;
use thalweg_record::Share;

use crate::kept::Kept;

/// The maximum number of files whose headers are remembered. Beyond it, the least recently seen is forgotten.
const MOST_PATHS: usize = 10_000;
/// The maximum memory of all remembered headers, in bytes. Beyond it, the least recently seen is forgotten.
const MOST_BYTES: usize = 16 << 20;
/// The bytes of a remembered file or column beside the text of its name.
const ENTRY: usize = 256;

/// The columns of each file. Files with the same header share one layout.
pub(crate) struct Headers {
    paths: HashMap<Option<Arc<str>>, Known>,
    layouts: Vec<Layout>,
    clock: u64,
    typing: Typing,
    /// The advice for a file whose header was not read.
    advice: &'static str,
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
    /// Starts without any file. Its memory counts on the budget of `memory`. `advice` says how to name the
    /// columns without a header.
    pub(crate) fn new(typing: Typing, advice: &'static str, memory: &Share) -> Self {
        let (paths, layouts) = (HashMap::new(), Vec::new());
        let kept = Kept::new(memory);
        Self { paths, layouts, clock: 0, typing, advice, bytes: 0, kept, has_changed: false }
    }

    /// Counts a batch: the files of the batches before it were used less recently.
    pub(crate) fn tick(&mut self) {
        self.clock += 1;
    }

    /// True if the header of the file is remembered.
    pub(crate) fn knows(&self, path: &Option<Arc<str>>) -> bool {
        self.paths.contains_key(path)
    }

    /// Returns the offset of the header in its file, if it is remembered and the source provides offsets.
    pub(crate) fn begins(&self, path: &Option<Arc<str>>) -> Option<u64> {
        self.paths.get(path).and_then(|known| known.begins)
    }

    /// Remembers the header of a file.
    pub(crate) fn learn(
        &mut self,
        path: Option<Arc<str>>,
        begins: Option<u64>,
        names: Result<Vec<String>, String>,
    ) {
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
    pub(crate) fn columns(&mut self, path: &Option<Arc<str>>) -> Result<&mut Columns, String> {
        let Some(known) = self.paths.get_mut(path) else {
            let of = path.as_deref().map(|path| format!(" of `{path}`")).unwrap_or_default();
            return Err(format!(
                "the header{of} was not read, because reading began after it: {}, then replay these messages \
                 (`thalweg errors replay`)",
                self.advice
            ));
        };
        known.used = self.clock;
        let at = known.layout.clone().map_err(|reason| unreadable(&reason))?;
        let layout = self.layouts.get_mut(at).map(|layout| &mut layout.columns);
        layout.ok_or_else(|| "the columns of the file were forgotten too early; this is a bug".to_owned())
    }

    /// Returns what a later run must know, if that changed.
    pub(crate) fn state(&mut self) -> Option<serde_json::Value> {
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
    ///
    /// # Errors
    /// If the state cannot be read.
    pub(crate) fn restore(&mut self, saved: serde_json::Value) -> Result<(), Error> {
        let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        for SavedFile { path, begins, columns } in saved.files {
            self.clock += 1;
            // A number without a layout cannot have been saved. Its file is then as one that was never seen.
            let names = columns.map(|at| saved.layouts.get(at).cloned());
            if let Some(names) = names.transpose() {
                self.learn(path, Some(begins), names);
            }
        }
        self.has_changed = false;
        Ok(())
    }
}

fn bytes_of_path(path: &Option<Arc<str>>) -> usize {
    ENTRY + path.as_ref().map_or(0, |path| path.len())
}

/// Returns the reason for rejecting the messages of a file whose header has a mistake.
pub(crate) fn unreadable(reason: &str) -> String {
    format!("the header could not be read: {}", shortened(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    #[test]
    fn headers_of_which_no_file_is_left_are_forgotten() {
        let mut headers =
            Headers::new(Typing::new(&Default::default(), None), "", &testing::context().memory);
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
