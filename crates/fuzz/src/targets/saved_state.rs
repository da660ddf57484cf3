//! States that components saved: any JSON is used, or refused with an error.
//!
//! The state directory has checksums, but another version or another component may have saved the state.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use thalweg_engine::testing::{batch_with, context, options, start};
use thalweg_engine::{
    Component, Context, Error, Outputs, Rejects, SinkConfig, SourceConfig, TransformConfig,
};
use thalweg_files::sinks::objects::ObjectsSink;
use thalweg_files::transforms::pack::Pack;
use thalweg_local::sinks::file::FileConfig;
use thalweg_local::sources::file::FileSource;
use thalweg_local::sources::generate::GenerateConfig;
use thalweg_record::{Ack, Batch, Outcome};
use thalweg_transforms::{
    add_id::AddId, add_sequence::AddSequence, changes::Changes, dedupe::Dedupe, limit::Limit,
    parse_csv::ParseCsv, sample::Sample, sort::Sort,
};
use tokio::runtime::{Builder, Runtime};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "saved_state",
    components: &[],
    longest: 4 << 10,
    words: &[
        "18446744073709551615",
        "-1",
        "1e308",
        "null",
        "\"layouts\":[[\"a\"]]",
        "\"columns\":{\"Ok\":0}",
        "\"parts\":[]",
        "\"inode\":1",
    ],
    run,
};

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// The text that a source reads, and that the sinks have written.
const TEXT: &[u8] = b"one\ntwo\nthree\n";

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let kind = input.choice(13);
    let Ok(saved) = serde_json::from_slice::<Value>(input.0) else { return };
    let used = bounded((16 << 20) + 100 * bytes.len(), || use_state(kind, saved));
    if let Err(error) = used {
        assert!(!error.to_string().is_empty());
    }
}

fn use_state(kind: usize, saved: Value) -> Result<(), Error> {
    match kind {
        0 => transform::<ParseCsv>("{ header: true }", saved),
        1 => transform::<Limit>("{ rate: 10, per: 1s, on_excess: drop }", saved),
        2 => transform::<AddSequence>("{ into: number }", saved),
        3 => transform::<AddId>("{ kind: sequence }", saved),
        4 => transform::<Sample>("{ one_in: 2 }", saved),
        5 => transform::<Dedupe>("{ keys: [payload], max_age: 5m }", saved),
        6 => transform::<Pack>("{ name: 'part-{number}.log', max_count: 2 }", saved),
        7 => sink::<FileConfig>("{ path: 'FOLDER/all.log' }", saved),
        8 => sink::<ObjectsSink>("{ url: 'FOLDER/all.log' }", saved),
        9 => source::<FileSource>("{ path: 'FOLDER/all.log' }", saved),
        10 => source::<GenerateConfig>("{ message: 'hello', count: 5 }", saved),
        11 => transform::<Sort>("{ by: payload }", saved),
        _ => transform::<Changes>("{}", saved),
    }
}

fn messages() -> Batch {
    batch_with([b"a,b", b"1,2", b"1,2"], Ack::new("test".into(), |_| {}))
}

fn transform<C>(yaml: &str, saved: Value) -> Result<(), Error>
where
    C: Component + TransformConfig + DeserializeOwned + JsonSchema + 'static,
{
    let mut transform = options::<C>(yaml).build(&context())?;
    transform.restore(saved)?;
    let mut out = Outputs::new("test".into());
    transform.apply(messages(), &mut out)?;
    while out.take_held().is_some() {
        transform.resume(&mut out)?;
    }
    transform.state();
    transform.finish(&mut out)?;
    while out.take_held().is_some() {
        drop(out.take());
        transform.resume(&mut out)?;
    }
    drop(out.take());
    Ok(())
}

/// Returns a folder with a file of an earlier run, and options that name it.
fn folder(yaml: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("all.log"), TEXT).expect("it is written");
    let yaml = yaml.replace("FOLDER", &folder.path().display().to_string());
    (folder, yaml)
}

fn sink<C>(yaml: &str, mut saved: Value) -> Result<(), Error>
where
    C: Component + SinkConfig + DeserializeOwned + JsonSchema + 'static,
{
    let (folder, yaml) = folder(yaml);
    place(&mut saved, &folder);
    let context = Context { resumes: true, ..context() };
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let mut sink = options::<C>(&yaml).build(&context)?;
            sink.open(Some(saved)).await?;
            let batch = messages();
            sink.write(&batch, &mut Rejects::default()).await?;
            sink.state();
            batch.settle(Outcome::Delivered);
            sink.finish().await
        })
    })
}

/// Moves all names of files into the folder: a state may name any file that the sink has written.
fn place(saved: &mut Value, folder: &TempDir) {
    match saved {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(name) if matches!(&**key, "name" | "path") => {
                        *name = format!("{}/{}", folder.path().display(), name.replace('/', "_"));
                    }
                    value => place(value, folder),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| place(value, folder)),
        _ => {}
    }
}

/// The state has a position for each partition.
fn source<C>(yaml: &str, saved: Value) -> Result<(), Error>
where
    C: Component + SourceConfig + DeserializeOwned + JsonSchema + 'static,
{
    let (folder, yaml) = folder(yaml);
    let file = folder.path().join("all.log").display().to_string();
    let saved: BTreeMap<String, Value> = match saved {
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (key.replace("FILE", &file), value)).collect()
        }
        value => BTreeMap::from([(String::new(), value)]),
    };
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let running = start::<C>(&yaml, 64 << 10, saved);
            let stop = running.stop.clone();
            let finish = running.finish();
            tokio::pin!(finish);
            let sent = tokio::select! {
                sent = &mut finish => sent,
                () = tokio::time::sleep(Duration::from_secs(2)) => {
                    stop.request();
                    finish.await
                }
            };
            sent.result.map_or(Ok(()), Err)
        })
    })
}
