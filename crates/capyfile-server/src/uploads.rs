//! The source of a request's files.

use std::sync::Arc;

use async_trait::async_trait;
use thalweg_engine::{Context, Error, Flow, Source, SourceConfig, SourceOutput};
use thalweg_net::upload::Upload;
use thalweg_record::File;

use crate::watch::Watch;

/// A source of files that have arrived.
pub(super) struct Uploaded {
    pub(super) files: Arc<[Upload]>,
    /// Receives the order of the files.
    pub(super) watch: Arc<Watch>,
}

impl SourceConfig for Uploaded {
    fn blocks(&self) -> bool {
        false
    }

    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Giving { files: self.files.clone(), watch: self.watch.clone() }))
    }
}

struct Giving {
    files: Arc<[Upload]>,
    watch: Arc<Watch>,
}

#[async_trait]
impl Source for Giving {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let name = out.name().clone();
        let files: Vec<File> = self.files.iter().map(|file| file.file(name.clone())).collect();
        self.watch.expect(&files);
        out.send_files(files, None).await
    }
}
