//! `thalweg capycmd`, `capysvr` and `capyworker`: the command lines of capyfile's three programs.
//!
//! A command line is translated into one of thalweg's, which then takes the place of this process, as for
//! `thalweg gollum`. So a unit file or a cron table needs one more word.
//!
//! The options are read as Go reads them, which clap cannot express: one dash or two, `-f x` or `-f=x`, and
//! no option after the first other argument.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;

use clap::Args;
use thalweg_frontend::{CommandError, Exit, print};

use super::gollum::replace;

const COMMON: &str = "\
  -f, --service-definition FILE    The service definition. Without it, the environment names it:
                                   see `thalweg serve --help`.
  -c, --concurrency                Report the files that an operation skips. They are always processed in parallel.
  -m, --concurrency-mode MODE      `event` or `lock`; accepted without effect.
";

const WORKER: &str = "\
  -s, --sleep SECONDS              The pause between two iterations. Without it, one second.
  -i, --max-iterations N           The number of iterations; 0 is no limit.
  -l, --log-file FILE              Append all output to this file.
";

const SERVER: &str = "\
  -hc, --health-check              Answer a health check.
  -hce, --health-check-endpoint PATH  Its path (/health).
  -hcv, --health-check-verbosity N    Its detail, 0 to 2.
";

/// Accepts the command line of capyfile's program `capycmd`.
///
/// `thalweg capycmd -f service.yml photos:archive` is `thalweg run -f service.yml photos:archive
/// --compat-exit-code`. See `thalweg capycmd --help`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Capycmd {
    /// capycmd's options.
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// Accepts the command line of capyfile's program `capysvr`.
///
/// `thalweg capysvr -f service.yml` is `thalweg serve -f service.yml --compat-status`. See `thalweg capysvr
/// --help`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Capysvr {
    /// capysvr's options.
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// Accepts the command line of capyfile's program `capyworker`.
///
/// `thalweg capyworker -f service.yml -s 5 photos:archive` is `thalweg run -f service.yml photos:archive
/// --repeat --sleep 5`. See `thalweg capyworker --help`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Capyworker {
    /// capyworker's options.
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// A program of capyfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Capycmd,
    Capysvr,
    Capyworker,
}

/// The meaning of a command line of capyfile.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    arguments: Vec<String>,
    log_file: Option<String>,
}

/// Runs the command of thalweg that a command line of capyfile means.
///
/// # Errors
/// If the command line is wrong, or the log file cannot be opened.
pub fn run(program: Program, options: &[String]) -> Result<Exit, CommandError> {
    let Some(wanted) = program.translate(options).map_err(CommandError::Usage)? else {
        print::out(&program.help())?;
        return Ok(Exit::Done);
    };
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "thalweg".into()));
    command.args(&wanted.arguments);
    if let Some(path) = wanted.log_file.as_deref().filter(|path| !path.is_empty()) {
        let log = appended(Path::new(path))?;
        let both = log.try_clone().map_err(|error| unopened(Path::new(path), &error))?;
        command.stdout(log).stderr(both);
    }
    replace(command)
}

fn appended(path: &Path) -> Result<File, CommandError> {
    OpenOptions::new().create(true).append(true).open(path).map_err(|error| unopened(path, &error))
}

fn unopened(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Usage(format!("the log file `{}` cannot be opened: {error}", path.display()))
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Capycmd => "capycmd",
            Self::Capysvr => "capysvr",
            Self::Capyworker => "capyworker",
        }
    }

    fn help(self) -> String {
        let (name, own) = match self {
            Self::Capycmd => ("capycmd [OPTIONS] SERVICE:PROCESSOR", ""),
            Self::Capysvr => ("capysvr [OPTIONS]", SERVER),
            Self::Capyworker => ("capyworker [OPTIONS] SERVICE:PROCESSOR", WORKER),
        };
        format!(
            "The command line of capyfile's program of that name.\n\nUsage: thalweg {name}\n\nOptions:\n{COMMON}{own}"
        )
    }

    /// Translates the options of capyfile; `None` if capyfile would print its help.
    fn translate(self, options: &[String]) -> Result<Option<Wanted>, String> {
        let (mut wanted, mut rest) = (Wanted::default(), Vec::new());
        let mut definition = None;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let Some((name, given)) = go_option(option) else {
                // As in Go, everything after the first other argument is an argument.
                let first = (option != "--").then(|| option.clone());
                return self.command(first.into_iter().chain(options.cloned()), definition, rest, wanted);
            };
            let mut value = || {
                let value = given.map(str::to_owned).or_else(|| options.next().cloned());
                value.ok_or_else(|| format!("`-{name}` needs a value; see `thalweg {} --help`", self.name()))
            };
            match (self, name) {
                (_, "h" | "help") => return Ok(None),
                (_, "f" | "service-definition") => definition = Some(value()?),
                (Self::Capysvr, "c" | "concurrency") => {}
                (_, "c" | "concurrency") if given == Some("false") => {}
                (_, "c" | "concurrency") => rest.push("--concurrency".to_owned()),
                (_, "m" | "concurrency-mode") => mode(&value()?)?,
                (Self::Capyworker, "s" | "sleep") => {
                    rest.extend(["--sleep".to_owned(), number(name, &value()?)?.to_string()]);
                }
                (Self::Capyworker, "i" | "max-iterations") => match number(name, &value()?)? {
                    0 => {}
                    most => rest.extend(["--iterations".to_owned(), most.to_string()]),
                },
                (Self::Capyworker, "l" | "log-file") => wanted.log_file = Some(value()?),
                (Self::Capysvr, "hc" | "health-check") => rest.push("--health-check".to_owned()),
                (Self::Capysvr, "hce" | "health-check-endpoint") => {
                    rest.extend(["--health-check-endpoint".to_owned(), value()?]);
                }
                (Self::Capysvr, "hcv" | "health-check-verbosity") => {
                    rest.extend(["--health-check-verbosity".to_owned(), value()?]);
                }
                _ => {
                    let program = self.name();
                    return Err(format!(
                        "{program} has no option `{option}`; see `thalweg {program} --help`"
                    ));
                }
            }
        }
        self.command([], definition, rest, wanted)
    }

    /// Puts the command together.
    fn command(
        self,
        arguments: impl IntoIterator<Item = String>,
        definition: Option<String>,
        rest: Vec<String>,
        wanted: Wanted,
    ) -> Result<Option<Wanted>, String> {
        let arguments: Vec<String> = arguments.into_iter().collect();
        let mut command: Vec<String> = Vec::new();
        match (self, arguments.as_slice()) {
            (Self::Capysvr, _) => command.extend(["serve", "--compat-status"].map(str::to_owned)),
            (_, [processor]) => {
                command.extend(["run", "--compat-exit-code", processor].map(str::to_owned));
            }
            _ => return Ok(None),
        }
        if self == Self::Capyworker {
            command.push("--repeat".to_owned());
        }
        command.extend(definition.into_iter().flat_map(|file| ["-f".to_owned(), file]));
        command.extend(rest);
        Ok(Some(Wanted { arguments: command, ..wanted }))
    }
}

/// Splits an option into its name and the value behind `=`; `None` if it is no option.
fn go_option(text: &str) -> Option<(&str, Option<&str>)> {
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|name| !name.is_empty())?;
    Some(match name.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name, None),
    })
}

fn mode(mode: &str) -> Result<(), String> {
    match mode {
        "event" | "lock" => Ok(()),
        other => Err(format!("`{other}` is not a mode of capyfile: there are `event` and `lock`")),
    }
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`-{name}` needs a number, and `{text}` is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(program: Program, line: &str) -> Result<Option<Wanted>, String> {
        program.translate(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn arguments(program: Program, line: &str) -> String {
        translated(program, line).unwrap().unwrap().arguments.join(" ")
    }

    #[test]
    fn each_program_becomes_its_command() {
        use Program::{Capycmd, Capysvr, Capyworker};
        for (program, line, expected) in [
            (Capycmd, "s:p", "run --compat-exit-code s:p"),
            (Capycmd, "-f a.yml -c -m lock s:p", "run --compat-exit-code s:p -f a.yml --concurrency"),
            (Capycmd, "--service-definition=a.yml -c=false s:p", "run --compat-exit-code s:p -f a.yml"),
            (Capyworker, "-f a.yml s:p", "run --compat-exit-code s:p --repeat -f a.yml"),
            (
                Capyworker,
                "--sleep=5 -i 3 --f a.yml s:p",
                "run --compat-exit-code s:p --repeat -f a.yml --sleep 5 --iterations 3",
            ),
            (Capyworker, "-i 0 s:p", "run --compat-exit-code s:p --repeat"),
            (
                Capysvr,
                "-f a.yml -hc -hce /alive -hcv 2",
                "serve --compat-status -f a.yml --health-check --health-check-endpoint /alive --health-check-verbosity 2",
            ),
            (Capysvr, "", "serve --compat-status"),
        ] {
            assert_eq!(arguments(program, line), expected, "{line}");
        }
        let log = translated(Capyworker, "-l out.log s:p").unwrap().unwrap().log_file;
        assert_eq!(log.as_deref(), Some("out.log"));
    }

    #[test]
    fn where_capyfile_prints_its_help_so_does_thalweg() {
        for line in ["", "-f a.yml", "s:p more", "s:p -c", "--help"] {
            assert_eq!(translated(Program::Capyworker, line), Ok(None), "{line}");
        }
    }

    #[test]
    fn wrong_options_are_explained() {
        for (line, reason) in [
            ("-f", "`-f` needs a value; see `thalweg capycmd --help`"),
            ("-x s:p", "capycmd has no option `-x`; see `thalweg capycmd --help`"),
            ("-s 5 s:p", "capycmd has no option `-s`; see `thalweg capycmd --help`"),
            ("-m both s:p", "`both` is not a mode of capyfile: there are `event` and `lock`"),
        ] {
            assert_eq!(translated(Program::Capycmd, line), Err(reason.to_owned()));
        }
        let wrong = translated(Program::Capyworker, "-s soon s:p");
        assert_eq!(wrong, Err("`-s` needs a number, and `soon` is none".to_owned()));
    }
}
