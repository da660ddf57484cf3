//! Runs thalweg beside its peers and beside the limit of the machine, on the same input in the same run, and
//! prints the ratios. Figures of one machine at one time say little; ratios say more, and medians of runs in turn
//! say most.
//!
//! `thalweg-bench [speed|gollum|files|memory|evaluations|transfer|sparse [TABLE...]] [--quick]`; `make bench` builds what it needs.

mod contest;
mod evaluations;
mod files;
mod gollum;
mod heap;
mod inputs;
mod limit;
mod measure;
mod memory;
mod report;
mod sparse;
mod speed;
mod transfer;

use contest::Contest;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match print_tables(&arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn print_tables(arguments: &[String]) -> Result<(), String> {
    // What runs as a process of its own, in turn with the others or to be looked at from outside.
    match arguments {
        [command, threads, count] if command == limit::COMMAND => {
            limit::run(threads, count.parse().unwrap_or(0));
            return Ok(());
        }
        [command, what] if command == evaluations::HOLD => return evaluations::hold(what),
        [command, rest @ ..] if command == transfer::BARE => return transfer::bare(rest),
        [command, file] if command == transfer::COUNT => return transfer::count(file),
        _ => {}
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let named: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect();
    // Sparse files have tables of their own to choose from.
    if let ["sparse", tables @ ..] = named.as_slice() {
        sparse::run(quick, tables);
        return Ok(());
    }
    let wanted = |name: &str| named.is_empty() || named.contains(&name);
    if ["speed", "gollum", "files", "memory"].into_iter().any(wanted) {
        let contest = Contest::new(quick)?;
        if wanted("speed") {
            speed::run(&contest)?;
        }
        if wanted("gollum") {
            gollum::run(&contest)?;
        }
        if wanted("files") {
            files::run(&contest)?;
        }
        if wanted("memory") {
            memory::run(&contest)?;
        }
        contest.clean()?;
    }
    if wanted("transfer") {
        let mut contest = Contest::new(quick)?;
        (contest.rounds, contest.warms_up) = (contest.rounds.min(3), false);
        let result = transfer::run(&contest);
        contest.clean()?;
        result?;
    }
    if wanted("evaluations") {
        evaluations::run(quick)?;
    }
    if wanted("sparse") {
        sparse::run(quick, &[]);
    }
    Ok(())
}
