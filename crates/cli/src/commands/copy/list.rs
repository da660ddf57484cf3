//! What would be copied.

use serde_json::json;
use thalweg_engine::Plan;
use thalweg_files::sources::objects::ObjectsSource;
use thalweg_store::Store;

use super::Job;
use crate::exit::CliError;
use crate::format::{bytes, counted, excerpt};
use crate::paint::Paint;
use crate::print;

/// Lets a source look for what there is. `each` gets the name below what is read, the name for people, and the size; it says whether
/// it wants to see more.
pub fn look(
    source: &ObjectsSource,
    each: &mut (dyn FnMut(&str, &str, u64) -> bool + Send),
) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(source.look(&mut |below, object| each(below, &object.name(), object.size())))?;
    Ok(())
}

/// Lists what would be copied. `each` gets the name of an object, where it would go, and its size; it says whether it wants
/// to see more.
pub fn targets(
    job: &Job<'_>,
    each: &mut (dyn FnMut(&str, String, u64) -> bool + Send),
) -> Result<(), CliError> {
    let (store, path) =
        Store::from_url(&job.places.to).map_err(|error| CliError::Usage(error.to_string()))?;
    let is_folder = path.is_empty() || path.ends_with('/');
    let target = |below: &str| store.name(&if is_folder { format!("{path}{below}") } else { path.clone() });
    look(&job.source, &mut |below, name, size| each(name, target(below), size))
}

/// Says what would be copied: each object with its size and where it would go, and all together.
pub fn show(job: &Job<'_>) -> Result<(), CliError> {
    let arguments = job.arguments;
    // On one line, with nothing in it that a terminal would obey.
    let shown = |name: &str| excerpt(name, usize::MAX);
    let (mut count, mut total) = (0_u64, 0_u64);
    let mut written = Ok(());
    targets(job, &mut |name, to, size| {
        count += 1;
        total = total.saturating_add(size);
        let line = match arguments.json {
            true => json!({ "event": "object", "from": name, "to": to, "bytes": size }).to_string(),
            false => format!("{:>10}  {} → {}", bytes(size), shown(name), shown(&to)),
        };
        written = print::out(&format!("{line}\n"));
        written.is_ok()
    })?;
    written?;
    if arguments.json {
        print::out(&format!("{}\n", json!({ "event": "total", "objects": count, "bytes": total })))?;
        return Ok(());
    }
    print::out(&format!("{:>10}  {}, and nothing is written\n", bytes(total), counted(count, "object")))?;
    if arguments.rows.parse.is_some() {
        let heading = Paint::stdout().bold("How it would run");
        print::out(&format!("\n{heading}\n{}", Plan::new(&job.graph, job.cores)))?;
    }
    Ok(())
}
