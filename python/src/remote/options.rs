//! The options of remote files, as Python passes them.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use thalweg_runtime::ConcurrencyLimit;
use thalweg_sparse::{Cache, OnChange, RemoteOptions, Retries};

use crate::errors::configuration_error;
use crate::sparse::Pool;

/// The options as given, kept to reopen the file in another process or from a pickle.
#[derive(IntoPyObjectRef)]
pub struct Given {
    pub cache: Option<PathBuf>,
    pub max_cache_bytes: Option<u64>,
    pub memory: Option<usize>,
    pub attempts: u32,
    pub silence: f64,
    pub concurrency: Option<usize>,
    pub on_change: String,
    pub widest_gap: u64,
    pub longest: u64,
    pub shortest: u64,
    pub read_ahead: u64,
    pub whole: u64,
}

impl Given {
    /// Converts the options.
    ///
    /// # Errors
    /// `ConfigurationError` for invalid values; `OSError` if the cache directory cannot be created.
    pub fn options(&self, py: Python<'_>, pool: Option<&Pool>) -> PyResult<RemoteOptions> {
        let wrong = |text: String| Err(configuration_error(py, &text));
        let on_change = match self.on_change.as_str() {
            "fail" => OnChange::Fail,
            "restart" => OnChange::Restart,
            other => return wrong(format!("on_change is `{other}`: it must be one of `fail`, `restart`")),
        };
        let Ok(silence) = Duration::try_from_secs_f64(self.silence) else {
            return wrong(format!("silence is {}: it must be a number of seconds, 0 or more", self.silence));
        };
        if self.attempts == 0 || self.concurrency == Some(0) || self.longest == 0 {
            return wrong("attempts, concurrency and longest must be at least 1".to_owned());
        }
        let default = RemoteOptions::default();
        let cache = self.cache.as_ref().map(|folder| Cache::new(folder, self.max_cache_bytes)).transpose()?;
        Ok(RemoteOptions {
            pool: pool.map(|pool| pool.0.clone()).or_else(|| self.memory.map(thalweg_sparse::Pool::new)),
            cache,
            concurrency: self.concurrency.map_or(default.concurrency.clone(), ConcurrencyLimit::fixed),
            retries: Retries { attempts: self.attempts, silence, ..Retries::default() },
            on_change,
            widest_gap: self.widest_gap,
            longest: self.longest,
            shortest: self.shortest,
            read_ahead: self.read_ahead,
            whole: self.whole,
            ..default
        })
    }
}
