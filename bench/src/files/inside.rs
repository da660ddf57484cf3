//! capyfile's benchmark inside the process: files in memory pass its two checks in a running pipeline. Files
//! and limits are those of capyfile's own fixture: random bytes, and limits that some or all files violate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_engine::{Context, Error, Flow, Plan, Run, Source, SourceConfig, SourceOutput, StateDir};
use thalweg_record::{Ack, File, Origin};
use tokio::sync::oneshot;

const CONFIGURATION: &str = "
sources:
  fixture: { files: { path: . } }
pipelines:
  main:
    from: fixture
    on_error: carry
    transforms:
      - check_size: { max: 5120B }
      - check_type: { allow: [image/jpeg] }
    to: done
  failed: { from: main.errors, to: rejected }
sinks:
  done: discard
  rejected: discard
";

/// The number of times that each fixture passes through.
const ROUNDS: usize = 200;

/// Prints the table.
///
/// # Errors
/// Returns an error if a run fails.
pub fn run() -> Result<(), String> {
    println!("Files in memory, checked inside the process (a pipeline that runs; median of {ROUNDS})\n");
    let rows = [
        ("500 files of 1 to 10 KB", 100, 1024),
        ("50 files of 1 to 10 KB", 10, 1024),
        ("500 files of 0.1 to 1 MB", 100, 102_400),
        ("50 files of 0.1 to 1 MB", 10, 102_400),
    ];
    for (title, each, unit) in rows {
        let took = through(each, unit)?;
        let files = each * 5;
        println!(
            "  {title:<28}{:>9.3} ms, {:.2} µs a file",
            took.as_secs_f64() * 1e3,
            took.as_secs_f64() * 1e6 / files as f64
        );
    }
    println!();
    Ok(())
}

/// Sends `each` files of each of five sizes, repeatedly. Returns the median time until all of them are
/// settled.
fn through(each: usize, unit: usize) -> Result<Duration, String> {
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
    let summary = runtime.map_err(|error| error.to_string())?.block_on(run.wait());
    if let Some(failure) = summary.failure {
        return Err(failure.to_string());
    }
    let mut took = fixture.took.lock();
    took.sort();
    took.get(took.len() / 2).copied().ok_or_else(|| "no rounds".to_owned())
}

struct Fixture {
    contents: Vec<(thalweg_record::Content, u64)>,
    took: Mutex<Vec<Duration>>,
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
            let start = Instant::now();
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
            self.0.took.lock().push(start.elapsed());
        }
        Ok(())
    }
}
