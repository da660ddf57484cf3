//! Measures how little memory thalweg needs.

use crate::contest::Contest;
use crate::inputs;
use crate::measure::run as measure;

/// Prints the peak resident size while four times the usual input passes through.
///
/// # Errors
/// Returns an error if a program fails.
pub fn run(contest: &Contest) -> Result<(), String> {
    let size = contest.size * 4;
    println!("Memory: peak resident size while {} MiB pass through\n", size >> 20);
    println!("  {:<12}{:>10}{:>16}", "", "budget", "peak RSS");
    let (input, output) = (contest.path("memory.in"), contest.path("memory.out"));
    let cases =
        [("copy.yaml", "lines"), ("search.yaml", "lines"), ("json.yaml", "json"), ("generate.yaml", "")];
    let mut made = "";
    for (case, kind) in cases {
        if made != kind && !kind.is_empty() {
            let written = match kind {
                "json" => inputs::json(&input, size),
                _ => inputs::lines(&input, size),
            };
            written.map_err(|error| error.to_string())?;
            made = kind;
        }
        for memory in ["32MiB", "256MiB"] {
            let variables = [
                ("INPUT", input.display().to_string()),
                ("OUTPUT", output.display().to_string()),
                ("COUNT", (size / 256).to_string()),
                ("MEMORY", memory.to_owned()),
            ];
            let measured = measure(&mut contest.thalweg(case, &variables))?;
            println!(
                "  {:<12}{:>10}{:>12} MiB",
                case.trim_end_matches(".yaml"),
                memory,
                measured.peak_rss >> 20
            );
        }
    }
    println!();
    Ok(())
}
