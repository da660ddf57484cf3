//! Runs programs that do the same work, in turn.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::{Run, median, run};

const GIB: u64 = 1 << 30;

/// The paths of all programs and files, the number of rounds and the size of an input.
pub struct Contest {
    /// The program to measure.
    pub thalweg: PathBuf,
    benthos: Option<PathBuf>,
    cases: PathBuf,
    scratch: PathBuf,
    /// The number of runs per contender, without a warm-up round.
    pub rounds: usize,
    /// The bytes of an input.
    pub size: u64,
}

/// A program to measure, and how to start it.
pub struct Contender<'a> {
    /// The name in the report.
    pub name: &'a str,
    command: Box<dyn Fn() -> Command + 'a>,
    output: Option<PathBuf>,
    check: Option<Check<'a>>,
}

/// Returns an error if the output of a run is wrong.
type Check<'a> = Box<dyn Fn(&Path) -> Result<(), String> + 'a>;

impl<'a> Contender<'a> {
    /// Creates a contender that starts `command` again for each round.
    pub fn new(name: &'a str, command: impl Fn() -> Command + 'a) -> Self {
        Self { name, command: Box::new(command), output: None, check: None }
    }

    /// Names the file or folder that the contender writes. It is removed before each start. Otherwise the
    /// result would depend on how each contender treats old files. One truncates the file and gets its warm
    /// pages, another keeps the old file until the new one is complete, a third appends.
    pub fn writing(self, output: &Path) -> Self {
        Self { output: Some(output.to_owned()), ..self }
    }

    /// Checks the output after each run, outside of the measured time.
    pub fn checked(self, check: impl Fn(&Path) -> Result<(), String> + 'a) -> Self {
        Self { check: Some(Box::new(check)), ..self }
    }

    /// Creates a contender that runs a shell script.
    pub fn shell(name: &'a str, script: String) -> Self {
        Self::new(name, move || {
            let mut command = Command::new("sh");
            command.arg("-c").arg(&script);
            command
        })
    }
}

impl Contest {
    /// Finds the programs and creates a folder for their inputs and outputs.
    ///
    /// # Errors
    /// Returns an error if thalweg was not built or the folder cannot be created.
    pub fn new(quick: bool) -> Result<Self, String> {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let thalweg = program.with_file_name("thalweg");
        if !thalweg.exists() {
            return Err(format!("`{}` does not exist: `make bench` builds it", thalweg.display()));
        }
        let benthos = std::env::var_os("BENTHOS").map(PathBuf::from).filter(|path| path.exists());
        let scratch = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        let (rounds, size) = if quick { (1, GIB / 16) } else { (5, GIB) };
        Ok(Self { thalweg, benthos, cases, scratch, rounds, size })
    }

    /// Removes the folder of this contest.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be removed.
    pub fn clean(&self) -> Result<(), String> {
        std::fs::remove_dir_all(&self.scratch).map_err(|error| error.to_string())
    }

    /// Returns the path of a file in the folder of this contest.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Copies one of gollum's configurations to the folder of this contest: thalweg keeps dead letters beside
    /// its configuration.
    ///
    /// # Errors
    /// Returns an error if the file cannot be copied.
    pub fn gollum(&self, file: &str) -> Result<PathBuf, String> {
        let copy = self.path(file);
        std::fs::copy(self.cases.join("gollum").join(file), &copy)
            .map_err(|error| format!("{file}: {error}"))?;
        Ok(copy)
    }

    /// Returns the command that runs thalweg with a configuration.
    pub fn thalweg_with(&self, configuration: &Path) -> Command {
        let mut command = Command::new(&self.thalweg);
        command.arg("run").arg(configuration).arg("--quiet");
        command
    }

    /// Returns the command that runs thalweg with one of the configurations in `cases`.
    pub fn thalweg(&self, case: &str, variables: &[(&str, String)]) -> Command {
        let mut command = self.thalweg_with(&self.cases.join("cases").join(case));
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Returns Benthos with one of the configurations in `benthos`, if it was built.
    pub fn benthos<'a>(&self, case: &str, variables: Vec<(&'a str, String)>) -> Option<Contender<'a>> {
        let (program, case) = (self.benthos.clone()?, self.cases.join("benthos").join(case));
        Some(Contender::new("benthos", move || {
            let mut command = Command::new(&program);
            command.arg("run").arg(&case);
            command.envs(variables.iter().map(|(name, value)| (*name, value)));
            command
        }))
    }

    /// Runs the contenders in turn, after a warm-up round. Running in turn exposes all of them to the same
    /// changes of the machine's speed.
    ///
    /// # Errors
    /// Returns an error if a contender fails or its output is wrong.
    pub fn compare(&self, contenders: &[Contender]) -> Result<Vec<Run>, String> {
        self.run(contenders, 0)
    }

    /// Does the same without a warm-up round, for long runs.
    ///
    /// # Errors
    /// As for [`compare`](Self::compare).
    pub fn compare_cold(&self, contenders: &[Contender]) -> Result<Vec<Run>, String> {
        self.run(contenders, 1)
    }

    /// Runs the contenders in the rounds from `first` on. Round 0 is the warm-up and does not count.
    fn run(&self, contenders: &[Contender], first: usize) -> Result<Vec<Run>, String> {
        let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
        for round in first..=self.rounds {
            // Each round starts with a different contender: the first one to fill memory that was unused for
            // long pays for it.
            let (before, from) = runs.split_at_mut(round % contenders.len().max(1));
            let (others, those) = contenders.split_at(before.len());
            for (contender, runs) in those.iter().zip(from).chain(others.iter().zip(before)) {
                if let Some(output) = contender.output.as_ref().filter(|output| output.exists()) {
                    let is_folder = output.is_dir();
                    let removed = if is_folder {
                        std::fs::remove_dir_all(output)
                    } else {
                        std::fs::remove_file(output)
                    };
                    removed.map_err(|error| error.to_string())?;
                }
                let measured = run(&mut (contender.command)())?;
                if let (Some(check), Some(output)) = (&contender.check, &contender.output) {
                    check(output).map_err(|why| format!("what {} wrote is wrong: {why}", contender.name))?;
                }
                if round > 0 {
                    runs.push(measured);
                }
            }
        }
        runs.into_iter().map(|runs| median(runs).ok_or_else(|| "no runs".to_owned())).collect()
    }
}
