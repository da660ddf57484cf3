//! The commands. Each is a file that parses its arguments and calls the front end.

mod buffer;
mod candidates;
mod capyfile;
mod check;
pub mod completions;
mod components;
mod convert;
#[cfg(feature = "stores")]
mod copy;
mod errors;
mod functions;
mod gollum;
mod new;
mod pipe;
mod ps;
mod reference;
mod reload;
mod run;
mod runs;
mod schema;
mod serve;
mod source;
#[cfg(feature = "stores")]
mod sparse;
mod support_bundle;
mod tap;
mod top;

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use thalweg_config::{ByteSize, FormatError, TimeSpan};
use thalweg_frontend::{CommandError, Early, Exit, Scheduling};
use thalweg_job::{Configuration, GollumVersion, LoadError};

use crate::version;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// The heading of options that other programs have.
const COMPATIBILITY: &str = "Compatibility with capyfile and gollum";

const AFTER_HELP: &str = "\
First steps:
  thalweg new -o first.yaml        write a small configuration
  thalweg check first.yaml         check it
  thalweg run first.yaml           run it
  thalweg components               list the components
  thalweg functions                list the functions of expressions

Exit codes:
  0  done; also after a stop, if everything in flight was delivered
  1  done, but messages could not be processed (only with `run --strict`), or files could not
     be copied or failed in a capyfile service
  2  the configuration or the command line is wrong
  3  failed";

/// Moves messages and files from any source, through transforms, to any sink.
///
/// A configuration names sources, pipelines of transforms, and sinks. thalweg runs it fast, within a memory
/// budget, and acknowledges a message only after its delivery.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version = version::SHORT, long_version = version::long(), styles = STYLES, after_help = AFTER_HELP, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Serve(serve::Arguments),
    #[cfg(feature = "stores")]
    Copy(Box<copy::Arguments>),
    Pipe(pipe::Arguments),
    Check(check::Arguments),
    Convert(convert::Arguments),
    New(new::Arguments),
    Components(components::Arguments),
    Functions(functions::Arguments),
    Gollum(gollum::Arguments),
    Capycmd(capyfile::Capycmd),
    Capysvr(capyfile::Capysvr),
    Capyworker(capyfile::Capyworker),
    Errors(errors::Arguments),
    Buffer(buffer::Arguments),
    Runs(runs::Arguments),
    Ps(ps::Arguments),
    Top(top::Arguments),
    Tap(tap::Arguments),
    Source(source::Arguments),
    Reload(reload::Arguments),
    #[cfg(feature = "stores")]
    Sparse(sparse::Arguments),
    Schema(schema::Arguments),
    SupportBundle(support_bundle::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Reference(reference::Arguments),
}

impl CommandLine {
    /// True if the command prints everything as JSON, on the standard error output.
    pub fn speaks_json(&self) -> bool {
        match &self.command {
            Command::Run(arguments) => arguments.speaks_json(),
            Command::Serve(arguments) => arguments.json,
            #[cfg(feature = "stores")]
            Command::Copy(arguments) => arguments.json,
            _ => false,
        }
    }
}

impl CommandLine {
    /// The effect of a signal before the command heeds signals.
    pub fn early(&self) -> Early {
        match &self.command {
            Command::Run(_) | Command::Serve(_) | Command::Pipe(_) => Early::Done,
            #[cfg(feature = "stores")]
            Command::Copy(_) => Early::Failed,
            Command::Errors(arguments) if arguments.replays() => Early::Failed,
            Command::Buffer(arguments) if arguments.replays() => Early::Failed,
            _ => Early::Dies,
        }
    }
}

/// Runs the command.
pub fn dispatch(line: CommandLine) -> Result<Exit, CommandError> {
    match line.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        #[cfg(feature = "stores")]
        Command::Copy(arguments) => copy::run(*arguments),
        Command::Pipe(arguments) => pipe::run(arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Components(arguments) => components::run(&arguments),
        Command::Functions(arguments) => functions::run(&arguments),
        Command::Gollum(arguments) => gollum::run(&arguments),
        Command::Capycmd(arguments) => capyfile::run(capyfile::Program::Capycmd, &arguments.options),
        Command::Capysvr(arguments) => capyfile::run(capyfile::Program::Capysvr, &arguments.options),
        Command::Capyworker(arguments) => capyfile::run(capyfile::Program::Capyworker, &arguments.options),
        Command::Errors(arguments) => errors::run(arguments),
        Command::Buffer(arguments) => buffer::run(arguments),
        Command::Runs(arguments) => runs::run(arguments),
        Command::Ps(arguments) => ps::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Tap(arguments) => tap::run(arguments),
        Command::Source(arguments) => source::run(arguments),
        Command::Reload(arguments) => reload::run(arguments),
        #[cfg(feature = "stores")]
        Command::Sparse(arguments) => sparse::run(arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::SupportBundle(arguments) => support_bundle::run(arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Reference(arguments) => reference::run(&arguments),
    }
}

/// A configuration as one of a version of gollum, if a version is given.
fn of_gollum(
    configuration: Configuration,
    version: Option<GollumVersion>,
) -> Result<Configuration, LoadError> {
    match version {
        Some(version) => configuration.as_gollum(version),
        None => Ok(configuration),
    }
}

/// Parses a size.
fn size(text: &str) -> Result<ByteSize, String> {
    ByteSize::from_str(text).map_err(|error| error.to_string())
}

/// Parses an address with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as `127.0.0.1:9090`".to_owned())
}

/// Parses the times of a schedule, or `off`.
fn schedule(text: &str) -> Result<Scheduling, String> {
    text.parse().map_err(|error: FormatError| error.to_string())
}

/// Parses a time span, or a number of seconds.
fn time(text: &str) -> Result<Duration, String> {
    TimeSpan::or_seconds(text).map(TimeSpan::duration).map_err(|error| error.to_string())
}
