//! Reads files to their end, one after the other.

use std::io::ErrorKind;
use std::path::Path;

use thalweg_beneath::is_link_out;
use thalweg_engine::{Error, ErrorKind as Kind, SourceOutput};
use thalweg_runtime::blocking;

use super::find::{Findings, Found, Unmatched, unreadable};
use super::read::{Step, reject_damaged};
use super::tail::Tail;
use super::{Files, OnMissing, forget_missing};
use thalweg_codec::framing::After;
use thalweg_stream::io_error::io_error;

/// The number of files whose sequences are noted with that of the file before them.
const NOTED_AHEAD: usize = 1000;

impl Files {
    /// Reads all existing files.
    pub(super) async fn read_once(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if !self.has_begun {
            let mut findings = blocking(|| self.finder.find());
            self.warn_of_skipped(&mut findings, out.name());
            self.waiting = self.readable(findings, out.name())?.into();
            let partitions = self.waiting.iter().map(|found| found.identity.partition()).collect();
            let sequences = self.sequences.as_mut();
            forget_missing(&partitions, self.waiting.make_contiguous(), sequences, out);
            out.add_expected(self.waiting.iter().map(|found| found.size).sum());
            self.has_begun = true;
        }
        while !out.is_stopping() {
            let Some(tail) = &mut self.current else {
                let Some(found) = self.waiting.front() else { break };
                let sequences = self.sequences.as_ref();
                match blocking(|| Tail::open(&found.path, &found.beneath, &self.config, sequences, out, true))
                {
                    Ok(mut tail) => {
                        out.add_progress(found.size.saturating_sub(tail.expected()));
                        self.note_sequences(&mut tail, out)?;
                        self.current = Some(tail);
                    }
                    Err(error) if is_link_out(&error) => {
                        warn_of_link(&found.path, &error, out.name());
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

    /// Notes what the sequence of a file was begun for that is about to be read, and those of the files after
    /// it: many files cost one write.
    fn note_sequences(&mut self, tail: &mut Tail, out: &SourceOutput) -> Result<(), Error> {
        let Some(sequences) = &mut self.sequences else { return Ok(()) };
        if !sequences.is_due() && !tail.is_unnoted() {
            return Ok(());
        }
        blocking(|| {
            sequences.note(tail, out).map_err(|error| io_error("read", &tail.path, &error))?;
            for found in self.waiting.iter().skip(1).take(NOTED_AHEAD) {
                // An error is that of the file when its turn comes.
                let next =
                    Tail::open(&found.path, &found.beneath, &self.config, Some(&*sequences), out, true);
                if let Ok(mut next) = next
                    && next.is_unnoted()
                {
                    let _ = sequences.note(&mut next, out);
                }
            }
            sequences.write(out)
        })
    }

    /// Returns the files that were found, or the first error if any of them cannot be read.
    fn readable(&self, findings: Findings, source: &str) -> Result<Vec<Found>, Error> {
        let ignores = self.config.on_missing == OnMissing::Ignore;
        for (path, error) in &findings.failed {
            if !(ignores && error.kind() == ErrorKind::NotFound) {
                return Err(unreadable(path, error));
            }
        }
        if let Some(unmatched) = findings.unmatched.first().filter(|_| !ignores) {
            return Err(unmatched.error());
        }
        let mut files = Vec::with_capacity(findings.files.len());
        for found in findings.files.into_iter().filter(|found| !found.is_old) {
            match blocking(|| found.beneath.open(&found.path)) {
                Ok(_) => files.push(found),
                Err(error) if is_link_out(&error) => warn_of_link(&found.path, &error, source),
                Err(error) => return Err(unreadable(&found.path, &error)),
            }
        }
        Ok(files)
    }
}

impl Unmatched {
    /// Returns the error of a run that has nothing to read.
    fn error(&self) -> Error {
        let pattern = &self.pattern;
        let folder = match Path::new(pattern).is_absolute() {
            true => String::new(),
            false => {
                format!(" (looked for in `{}`)", std::env::current_dir().unwrap_or_default().display())
            }
        };
        Error::permanent(match &self.link {
            Some(link) => format!(
                "`{pattern}` matches only links that lead out of its folder{folder}, such as `{}`. \
                 `symlinks: files` reads them.",
                link.display()
            ),
            None => format!(
                "no file matches `{pattern}`{folder}. If that is expected, set `on_missing: ignore`; to wait \
                 for files, set `follow: true`."
            ),
        })
    }
}

/// Reports a file in whose place another user has put a link since it was found.
fn warn_of_link(path: &Path, error: &std::io::Error, source: &str) {
    tracing::warn!("`{source}`: `{}` is skipped: {error}", path.display());
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
