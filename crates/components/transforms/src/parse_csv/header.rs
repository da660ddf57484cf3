//! Files whose first record names their columns.

use std::sync::Arc;

use arrow_array::Array;
use hashbrown::HashMap;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::{Batch, all_but};

use thalweg_codec::columns::{Columns, Typing, missing, reject_all, shortened};
use thalweg_codec::csv::{Dialect, names};
use thalweg_codec::keys::bytes_of;

/// The maximum number of files whose headers are remembered. Beyond it, the least recently seen is forgotten.
const MOST_PATHS: usize = 10_000;

/// The columns of each file. Files with the same header share one layout.
pub(super) struct Headers {
    paths: HashMap<Option<Arc<str>>, Known>,
    layouts: Vec<(Vec<String>, Columns)>,
    clock: u64,
    typing: Typing,
}

struct Known {
    layout: Result<usize, String>,
    used: u64,
}

impl Headers {
    /// Starts without any file.
    pub(super) fn new(typing: Typing) -> Self {
        Self { paths: HashMap::new(), layouts: Vec::new(), clock: 0, typing }
    }

    /// Remembers the header of a file.
    fn learn(&mut self, path: Option<Arc<str>>, names: Result<Vec<String>, String>) {
        let layout = names.map(|names| {
            let known = self.layouts.iter().position(|(known, _)| *known == names);
            known.unwrap_or_else(|| {
                let columns = Columns::new(self.typing.clone(), &names);
                self.layouts.push((names, columns));
                self.layouts.len() - 1
            })
        });
        let former = self.paths.insert(path, Known { layout, used: self.clock });
        former.into_iter().for_each(|former| self.release(former));
        if self.paths.len() > MOST_PATHS {
            let oldest = self.paths.iter().min_by_key(|(_, known)| known.used).map(|(path, _)| path.clone());
            let oldest = oldest.and_then(|path| self.paths.remove(&path));
            oldest.into_iter().for_each(|oldest| self.release(oldest));
        }
    }

    /// Drops the layout of a file that was forgotten, unless another file uses it.
    fn release(&mut self, known: Known) {
        let Ok(at) = known.layout else { return };
        if at >= self.layouts.len() || self.paths.values().any(|known| known.layout == Ok(at)) {
            return;
        }
        // The last layout moves to its index.
        self.layouts.swap_remove(at);
        let moved = Ok(self.layouts.len());
        for known in self.paths.values_mut().filter(|known| known.layout == moved) {
            known.layout = Ok(at);
        }
    }
}

/// Parses records whose columns are named by the first record of their file.
pub(super) struct WithHeader {
    pub(super) dialect: Dialect,
    pub(super) headers: Headers,
    pub(super) max_columns: usize,
    pub(super) field: String,
    pub(super) scratch: String,
}

impl Transform for WithHeader {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Some(mut input) = bytes_of(&batch, &self.field) else {
            return Ok(reject_all(batch, &missing(&self.field), out)?);
        };
        if input.is_empty() {
            out.send(batch);
            return Ok(());
        }
        self.headers.clock += 1;
        let path = batch.meta().path.clone();
        // If positions are known, a file begins at offset 0, or at most 3 after a byte order mark.
        let begins =
            batch.positions().and_then(|positions| positions.values().first()).map(|&first| first <= 3);
        let is_new = !self.headers.paths.contains_key(&path);
        let mut batch = batch;
        if begins.is_some_and(|begins| begins) || (is_new && (begins.is_none() || path.is_none())) {
            let names = match input.is_null(0) {
                true => Err(missing(&self.field)),
                false => names(self.dialect, input.value(0), self.max_columns, &mut self.scratch),
            };
            self.headers.learn(path.clone(), names);
            let others = all_but(batch.rows(), [0]);
            match batch.filter(&others)? {
                Some(others) => batch = others,
                None => return Ok(()),
            }
            let Some(others) = bytes_of(&batch, &self.field) else {
                return Ok(reject_all(batch, &missing(&self.field), out)?);
            };
            input = others;
        }
        let Some(known) = self.headers.paths.get_mut(&path) else {
            let path = path.as_deref().unwrap_or_default();
            let reason = format!(
                "the header of `{path}` was not read, because reading began after it: give `columns`"
            );
            return Ok(reject_all(batch, &reason, out)?);
        };
        known.used = self.headers.clock;
        match &known.layout {
            Err(reason) => {
                let reason = format!("the header could not be read: {}", shortened(reason));
                Ok(reject_all(batch, &reason, out)?)
            }
            Ok(layout) => match self.headers.layouts.get_mut(*layout) {
                Some((_, columns)) => {
                    self.dialect.rows(&input, &self.field, columns, &mut self.scratch);
                    Ok(columns.finish(batch, out)?)
                }
                None => {
                    Err(Error::permanent("the columns of a file were forgotten too early; this is a bug"))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_which_no_file_is_left_are_forgotten() {
        let mut headers = Headers::new(Typing::new(&Default::default(), None));
        let names = |n: usize| Ok(vec![format!("a{n}"), "b".to_owned()]);
        headers.learn(Some("steady".into()), names(0));
        headers.learn(Some("broken".into()), Err("no".to_owned()));
        for n in 0..100 {
            headers.learn(Some("rotated".into()), names(n));
        }
        assert_eq!(headers.layouts.len(), 2);
        for n in 0..2 * MOST_PATHS {
            headers.clock += 1;
            headers.learn(Some(format!("{n}").into()), names(n % 7));
        }
        assert_eq!((headers.paths.len(), headers.layouts.len()), (MOST_PATHS, 7));
        for known in headers.paths.values() {
            assert!(known.layout.as_ref().is_ok_and(|&at| at < 7));
        }
    }
}
