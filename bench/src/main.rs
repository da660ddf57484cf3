//! Runs thalweg beside its peers and beside the limit of the machine, on the same input in the same run, and
//! prints the ratios. Figures of one machine at one time say little; ratios say more, and medians of runs in turn
//! say most.
//!
//! `thalweg-bench [speed|memory] [--quick]`; `make bench` builds what it needs.

mod contest;
mod inputs;
mod limit;
mod measure;
mod memory;
mod report;
mod speed;

use contest::Contest;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, count] = arguments.as_slice()
        && command == limit::COMMAND
    {
        limit::two_threads(count.parse().unwrap_or(0), 256 << 10);
        return std::process::ExitCode::SUCCESS;
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let wanted = |name: &str| {
        let mut named = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
        named.peek().is_none() || named.any(|argument| argument == name)
    };
    let result = Contest::new(quick).and_then(|contest| {
        if wanted("speed") {
            speed::run(&contest)?;
        }
        if wanted("memory") {
            memory::run(&contest)?;
        }
        contest.clean()
    });
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
