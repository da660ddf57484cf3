//! The standard input as one file, for file readers: `thalweg copy - all.csv --parse csv`.
//!
//! It is no component of configurations, because most of what takes files needs their size, or reads them
//! more than once.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use thalweg_engine::{Context, Error, Flow, Source, SourceConfig, SourceOutput};
use thalweg_record::{Content, File, Origin};
use thalweg_runtime::standard_streams;

use crate::content::STDIN;

/// Sends the standard input as a file. It must lead to a file reader.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandardInput;

impl SourceConfig for StandardInput {
    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn resends(&self) -> bool {
        false
    }

    fn reads_stdin(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        standard_streams::input().map_err(Error::permanent)?;
        Ok(Box::new(*self))
    }
}

#[async_trait]
impl Source for StandardInput {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let lease = Arc::new(out.reserve(File::WEIGHT).await);
        let origin = Origin::new(out.name().clone(), "stdin".into(), 0);
        let file = File::new(origin, Content::Path(PathBuf::from(STDIN))).with_lease(lease);
        out.send_files(vec![file], None).await
    }
}
