//! The size of the program: as it was built, and as it is installed.
//!
//! `make dist` writes the stripped program and the slim build; their rows are left out where it has not run.

use std::path::Path;

use crate::contest::Contest;
use crate::report::grouped;

/// Prints the sizes in bytes.
///
/// # Errors
/// If the program does not exist.
pub fn run(contest: &Contest) -> Result<(), String> {
    println!("\nsize of the program, bytes");
    let full =
        size(&contest.thalweg).ok_or_else(|| format!("{} does not exist", contest.thalweg.display()))?;
    println!("  {:<22}{:>14}", "with symbols", grouped(full));
    let folder = contest.thalweg.parent().and_then(Path::parent).map(|target| target.join("dist"));
    let dist = |name: &str| folder.as_ref().and_then(|folder| size(&folder.join(name)));
    let stripped = dist("thalweg");
    if let Some(stripped) = stripped {
        println!("  {:<22}{:>14}", "stripped", grouped(stripped));
    }
    if let (Some(slim), Some(stripped)) = (dist("thalweg-slim"), stripped) {
        println!(
            "  {:<22}{:>14}   {:.2} of the full program",
            "slim, stripped",
            grouped(slim),
            slim / stripped
        );
    }
    Ok(())
}

fn size(path: &Path) -> Option<f64> {
    std::fs::metadata(path).ok().map(|found| found.len() as f64)
}
