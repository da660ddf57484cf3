//! capyfile's benchmark inside the process: files in memory pass its two checks in a running pipeline. Files
//! and limits are those of capyfile's own fixture: random bytes, and limits that some or all files violate.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_engine::{Context, Error, Flow, Plan, Run, Source, SourceConfig, SourceOutput, StateDir};
use thalweg_record::{Ack, File, Origin};
use tokio::sync::oneshot;

use super::go::{self, Cost};
use crate::contest::Contest;
use crate::heap;
use crate::table::Table;

const CONFIGURATION: &str = "
sources:
  fixture: { files: { path: . } }
pipelines:
  main:
    from: fixture
    on_error: carry
    transforms:
      - check_size: { max_bytes: 5120B }
      - check_type: { allow: [image/jpeg] }
    to: done
  failed: { from: main.errors, to: rejected }
sinks:
  done: discard
  rejected: discard
";

/// The number of times that each fixture passes through.
const ROUNDS: usize = 200;

/// The seed's examples: a title, the files of each size, and the unit of sizes in KiB.
const EXAMPLES: [(&str, usize, usize); 4] = [
    ("500 files of 1 to 10 KB", 100, 1),
    ("50 files of 1 to 10 KB", 10, 1),
    ("500 files of 0.1 to 1 MB", 100, 100),
    ("50 files of 0.1 to 1 MB", 10, 100),
];

/// Prints the table of the seed's benchmark. An operation is one pass of all files of an example.
///
/// # Errors
/// Returns an error if a run fails.
pub fn run(contest: &Contest) -> Result<(), String> {
    let title = "capyfile's Go benchmark: files in memory pass a check of their size and one of their type";
    let columns = ["ns/op", "B/op", "allocs/op"];
    let mut table = Table::new("capyfile", "benchmark", title, "files", &columns);
    let capyfile = go::source();
    for (title, each, kib) in EXAMPLES {
        table.row(title, "thalweg", &through(each, kib << 10)?.figures());
        for mode in ["Event", "Lock"] {
            let name = format!("capyfile, {} mode", mode.to_lowercase());
            let figures = match &capyfile {
                Some(source) => go::run(source, &contest.path("go"), mode, each, kib)?.figures(),
                None => [None; 3],
            };
            table.row(title, &name, &figures);
        }
    }
    table.plot("ns/op");
    table.plot("allocs/op");
    table.note(format!("thalweg: a pipeline that runs, on two threads; medians of {ROUNDS} passes."));
    table.note(
        "capyfile: its benchmark, with the numbers of each example, and without the creation of files.",
    );
    table.note("All files fail a check: of the large ones, capyfile and thalweg examine only the size.");
    if capyfile.is_none() {
        table.note(format!("capyfile was not measured: set {} to its source; Go is needed.", go::SOURCE));
    }
    table.finish()
}

/// Sends `each` files of each of five sizes, repeatedly. Returns the median cost until all of them are
/// settled.
fn through(each: usize, unit: usize) -> Result<Cost, String> {
    let mut random = fastrand::Rng::with_seed(7);
    let contents = [1, 3, 5, 7, 10].into_iter().flat_map(|factor| {
        let mut content = vec![0; factor * unit];
        random.fill(&mut content);
        let content: thalweg_record::Content = content.into();
        std::iter::repeat_n((content, (factor * unit) as u64), each)
    });
    let fixture = Arc::new(Fixture { contents: contents.collect(), took: Mutex::default() });
    let registry = thalweg_components::registry();
    let document =
        thalweg_config::Document::parse("bench", CONFIGURATION).map_err(|error| error.render(false))?;
    let mut graph = thalweg_engine::read(&document, &registry).map_err(|error| error.render(false))?;
    for source in &mut graph.sources {
        source.config = Arc::new(Fixed(fixture.clone()));
    }
    let state_dir =
        StateDir { folder: std::env::temp_dir().join("thalweg-bench-none"), positions: false, owner: None };
    let run = Run::new(Plan::new(&graph, 2), state_dir).map_err(|error| error.full())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    heap::count(true);
    let summary = runtime.map_err(|error| error.to_string())?.block_on(run.wait());
    heap::count(false);
    if let Some(failure) = summary.failure {
        return Err(failure.to_string());
    }
    Cost::median(&fixture.took.lock()).ok_or_else(|| "no rounds".to_owned())
}

struct Fixture {
    contents: Vec<(thalweg_record::Content, u64)>,
    took: Mutex<Vec<Cost>>,
}

struct Fixed(Arc<Fixture>);

impl SourceConfig for Fixed {
    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Sending(self.0.clone())))
    }
}

struct Sending(Arc<Fixture>);

#[async_trait]
impl Source for Sending {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let (start, before) = (Instant::now(), heap::allocated());
            let (tell, settled) = oneshot::channel();
            let ack = Ack::new("bench".into(), move |settlement| drop(tell.send(settlement)));
            for group in self.0.contents.chunks(32) {
                let file = |(content, size): &(thalweg_record::Content, u64)| {
                    let origin = Origin::new("bench".into(), "file.bin".into(), *size);
                    let mut file = File::new(origin, content.clone());
                    file.ack_mut().merge(ack.split());
                    file
                };
                out.send_files(group.iter().map(file).collect(), None).await?;
            }
            ack.settle(thalweg_record::Outcome::Filtered);
            // Rejected files are settled as well.
            let _ = settled.await;
            let (took, after) = (start.elapsed(), heap::allocated());
            self.0.took.lock().push(Cost {
                nanoseconds: took.as_secs_f64() * 1e9,
                bytes: (after.0 - before.0) as f64,
                allocations: (after.1 - before.1) as f64,
            });
        }
        Ok(())
    }
}
