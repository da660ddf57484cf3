//! Reads files to their end, one after the other.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use thalweg_engine::{Error, ErrorKind as Kind, SourceOutput};
use thalweg_runtime::blocking;

use super::find::{Findings, Found, unreadable};
use super::read::{Step, reject_damaged};
use super::tail::Tail;
use super::{Files, OnMissing, forget_missing};
use thalweg_codec::framing::After;
use thalweg_stream::io_error::io_error;

impl Files {
    /// Reads all existing files.
    pub(super) async fn read_once(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if !self.has_begun {
            let mut findings = blocking(|| self.finder.find());
            self.warn_of_skipped(&mut findings, out.name());
            self.waiting = self.readable(findings)?.into();
            let partitions = self.waiting.iter().map(|found| found.identity.partition()).collect();
            forget_missing(&partitions, self.waiting.make_contiguous(), out);
            out.add_expected(self.waiting.iter().map(|found| found.size).sum());
            self.has_begun = true;
        }
        while !out.is_stopping() {
            let Some(tail) = &mut self.current else {
                let Some(found) = self.waiting.front() else { break };
                match blocking(|| Tail::open(&found.path, &self.config, out, true)) {
                    Ok(tail) => {
                        out.add_progress(found.size.saturating_sub(tail.expected()));
                        self.current = Some(tail);
                    }
                    Err(error) => {
                        let error = unreadable(&found.path, &error);
                        if error.kind() == Kind::Temporary {
                            return Err(error);
                        }
                        self.failed.push(error);
                    }
                }
                self.waiting.pop_front();
                continue;
            };
            match self.reader.step(tail, After::End, out).await? {
                Step::More => {}
                Step::Stopped => break,
                Step::End => self.current = None,
                Step::Failed => {
                    let error = match reject_damaged(tail, out).await? {
                        Some(error) => error,
                        None => match tail.failure.take() {
                            Some(error) => io_error("read", &tail.path, &error),
                            None => continue,
                        },
                    };
                    if error.kind() == Kind::Temporary {
                        tail.recover().map_err(|error| io_error("read", &tail.path, &error))?;
                        return Err(error);
                    }
                    self.failed.push(error);
                    self.current = None;
                }
            }
        }
        summary(std::mem::take(&mut self.failed))
    }

    /// Returns the files that were found, or the first error if any of them cannot be read.
    fn readable(&self, findings: Findings) -> Result<Vec<Found>, Error> {
        let ignores = self.config.on_missing == OnMissing::Ignore;
        for (path, error) in &findings.failed {
            if !(ignores && error.kind() == ErrorKind::NotFound) {
                return Err(unreadable(path, error));
            }
        }
        if let Some(pattern) = findings.unmatched.first().filter(|_| !ignores) {
            let folder = std::env::current_dir().unwrap_or_default();
            let folder = if Path::new(pattern).is_absolute() {
                String::new()
            } else {
                format!(" (looked for in `{}`)", folder.display())
            };
            return Err(Error::permanent(format!(
                "no file matches `{pattern}`{folder}. If that is expected, set `on_missing: ignore`; to wait \
                 for files, set `follow: true`."
            )));
        }
        let files: Vec<Found> = findings.files.into_iter().filter(|found| !found.is_old).collect();
        for found in &files {
            blocking(|| File::open(&found.path)).map_err(|error| unreadable(&found.path, &error))?;
        }
        Ok(files)
    }
}

/// Combines the errors of all files into one.
fn summary(failed: Vec<Error>) -> Result<(), Error> {
    /// The maximum number of errors in the message: users do not read more.
    const SHOWN: usize = 5;
    let count = failed.len();
    if count <= 1 {
        return failed.into_iter().next().map_or(Ok(()), Err);
    }
    let shown: Vec<String> = failed.iter().take(SHOWN).map(Error::full).collect();
    let more = if count > SHOWN { format!("; and {} more", count - SHOWN) } else { String::new() };
    Err(Error::permanent(format!("{count} files were not read to their end: {}{more}", shown.join("; "))))
}
