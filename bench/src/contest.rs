//! Programs that do the same work, run in turn.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::measure::{Run, median, run};

const GIB: u64 = 1 << 30;

/// Where everything is, and how much of it there shall be.
pub struct Contest {
    thalweg: PathBuf,
    benthos: Option<PathBuf>,
    cases: PathBuf,
    scratch: PathBuf,
    /// How often each contender runs, after a round to warm up if there is to be one.
    pub rounds: usize,
    /// The bytes of an input.
    pub size: u64,
}

/// Something to measure: how it is started.
pub struct Contender<'a> {
    /// What it is called in the report.
    pub name: &'a str,
    command: Box<dyn Fn() -> Command + 'a>,
    output: Option<PathBuf>,
    check: Option<Check<'a>>,
}

/// Says what is wrong with what a run has written.
type Check<'a> = Box<dyn Fn(&Path) -> Result<(), String> + 'a>;

impl<'a> Contender<'a> {
    /// A program that this starts anew for each round.
    pub fn new(name: &'a str, command: impl Fn() -> Command + 'a) -> Self {
        Self { name, command: Box::new(command), output: None, check: None }
    }

    /// Names the file or folder that it writes. Before each start it is removed: one contender truncates what it finds and gets
    /// its warm pages, another keeps the old file until the new one is complete, a third appends; what would be
    /// compared is how the system finds fresh memory.
    pub fn writing(self, output: &Path) -> Self {
        Self { output: Some(output.to_owned()), ..self }
    }

    /// Looks at what it has written after each of its runs, outside of the time that is taken.
    pub fn checked(self, check: impl Fn(&Path) -> Result<(), String> + 'a) -> Self {
        Self { check: Some(Box::new(check)), ..self }
    }

    /// A line for the shell.
    pub fn shell(name: &'a str, script: String) -> Self {
        Self::new(name, move || {
            let mut command = Command::new("sh");
            command.arg("-c").arg(&script);
            command
        })
    }
}

impl Contest {
    /// Finds the programs, and makes a folder for what they read and write.
    ///
    /// # Errors
    /// If thalweg was not built, or the folder cannot be made.
    pub fn new(quick: bool) -> Result<Self, String> {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let thalweg = program.with_file_name("thalweg");
        if !thalweg.exists() {
            return Err(format!("{} is not there: `make bench` builds it", thalweg.display()));
        }
        let benthos = std::env::var_os("BENTHOS").map(PathBuf::from).filter(|path| path.exists());
        let scratch = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        let (rounds, size) = if quick { (1, GIB / 16) } else { (5, GIB) };
        Ok(Self { thalweg, benthos, cases, scratch, rounds, size })
    }

    /// Removes what the runs have left.
    ///
    /// # Errors
    /// If the folder cannot be removed.
    pub fn clean(&self) -> Result<(), String> {
        std::fs::remove_dir_all(&self.scratch).map_err(|error| error.to_string())
    }

    /// A file in the folder of this run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// One of gollum's configurations, copied to the folder of this run: what could not be processed is kept beside it.
    ///
    /// # Errors
    /// If it cannot be copied.
    pub fn gollum(&self, file: &str) -> Result<PathBuf, String> {
        let copy = self.path(file);
        std::fs::copy(self.cases.join("gollum").join(file), &copy)
            .map_err(|error| format!("{file}: {error}"))?;
        Ok(copy)
    }

    /// thalweg with a configuration.
    pub fn thalweg_with(&self, configuration: &Path) -> Command {
        let mut command = Command::new(&self.thalweg);
        command.arg("run").arg(configuration).arg("--quiet");
        command
    }

    /// thalweg with one of the configurations in `cases`.
    pub fn thalweg(&self, case: &str, variables: &[(&str, String)]) -> Command {
        let mut command = self.thalweg_with(&self.cases.join("cases").join(case));
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Benthos with one of the configurations in `benthos`, if it was built.
    pub fn benthos<'a>(&self, case: &str, variables: Vec<(&'a str, String)>) -> Option<Contender<'a>> {
        let (program, case) = (self.benthos.clone()?, self.cases.join("benthos").join(case));
        Some(Contender::new("benthos", move || {
            let mut command = Command::new(&program);
            command.arg("run").arg(&case);
            command.envs(variables.iter().map(|(name, value)| (*name, value)));
            command
        }))
    }

    /// Runs the contenders in turn, so that all see the machine in the same moods, after a round to warm up.
    ///
    /// # Errors
    /// If one of them fails, or what it wrote is wrong.
    pub fn compare(&self, contenders: &[Contender]) -> Result<Vec<Run>, String> {
        self.run(contenders, 0)
    }

    /// The same without the round to warm up: for what takes long.
    ///
    /// # Errors
    /// As there.
    pub fn compare_cold(&self, contenders: &[Contender]) -> Result<Vec<Run>, String> {
        self.run(contenders, 1)
    }

    /// Runs the contenders in the rounds from one on, of which the one of the number 0 does not count.
    fn run(&self, contenders: &[Contender], first: usize) -> Result<Vec<Run>, String> {
        let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
        for round in first..=self.rounds {
            // Another one begins each time: who is the first to fill memory that the machine has not had for long pays
            // for that.
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
