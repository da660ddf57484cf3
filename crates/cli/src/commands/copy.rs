//! `thalweg copy`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_config::ByteSize;
use thalweg_frontend::{CommandError, Exit, Show};
use thalweg_job::copy::{self, CopyOptions, Mode};

use super::{candidates, size};

/// Copies objects, one or all below a prefix, between S3, GCS, Azure, web servers (only as the source) and
/// folders.
///
/// Bytes are copied unchanged, in parts and in parallel. Checksums are compared if the store supports them.
/// An object becomes visible only when it is complete. With `--parse`, rows are read from the objects,
/// transformed, and written as one object. An interrupted copy resumes when the same command runs again: see
/// `--restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg copy s3://bucket/2026/ backup/
  thalweg copy 's3://bucket/logs/**/*.gz' 'az://archive/logs/?account_name=mine'
  thalweg copy https://example.org/large.iso gs://bucket/
  thalweg copy people.csv people.jsonl --parse csv --encode json --type age=int --where 'age >= 18' --keep name,age
  thalweg copy 's3://bucket/*.csv' all.csv --parse csv --where \"city = 'Bern'\"
  cat orders.csv | thalweg copy - s3://bucket/orders.parquet --parse csv --encode parquet
  thalweg copy s3://bucket/log.gz - | zcat | head
  thalweg copy s3://bucket/ backup/ --dry-run
  thalweg copy s3://bucket/ backup/ --print-config > backup.yaml

Put patterns between quotes: the shell would expand them.

With --json, all output goes to the standard error output, one object per line, as with
`thalweg run`. The summary has a member `copy`.

Exit codes:
  0  everything was copied; with --parse also if rows could not be read (see --strict)
  1  files could not be copied; with --strict also if rows could not
  2  the command line is wrong
  3  failed, was stopped before everything was copied, or there is nothing to copy")]
pub struct Arguments {
    /// The objects to copy: s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://…, or a path. A
    /// trailing slash means all objects below it. `*` or `**` makes it a pattern. `-` is the standard input.
    #[arg(value_name = "FROM", add = candidates::objects())]
    from: String,
    /// The target: the name of the object or, with a trailing slash, the prefix of all names. `-` is the
    /// standard output.
    #[arg(value_name = "TO", add = candidates::objects())]
    to: String,
    /// Copy only objects that match a pattern. A pattern applies to the last part of the name or, if it
    /// contains a `/`, to everything below FROM. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Do not copy objects that match this pattern.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// The action for symbolic links in a local folder. Without it, those that lead out of it are skipped.
    #[arg(long, value_name = "WHAT")]
    symlinks: Option<Symlinks>,
    /// The treatment of a target object that exists. Without it, the object is replaced.
    #[arg(long, value_name = "WHAT")]
    existing: Option<Existing>,
    /// The content type of written objects.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// List what would be copied, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the configuration for `thalweg run` that does the same, and copy nothing.
    #[arg(long, conflicts_with = "dry_run")]
    print_config: bool,
    /// The memory for data in flight, for example `1GiB`. Without it, `256MiB`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// End with exit code 1 if rows could not be read or written.
    #[arg(long)]
    strict: bool,
    /// Print everything as JSON on the standard error output, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Print only errors.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    state: State,
    #[command(flatten)]
    pace: Pace,
}

/// How rows are parsed, changed and encoded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rows")]
struct Rows {
    /// Read rows from the objects (which may be compressed) instead of copying their bytes. The rows of
    /// several objects become one object.
    #[arg(long, value_name = "FORM")]
    parse: Option<Parse>,
    /// Write rows in this form. Without it, CSV stays CSV, JSON stays JSON, Avro becomes JSON, and lines are
    /// written unchanged.
    #[arg(long, value_name = "FORM")]
    encode: Option<Encode>,
    /// Copy only rows for which this SQL condition is true, for example `"age >= 18"`.
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// Set a field to the value of a SQL expression, for example `name="upper(name)"`. May be given several
    /// times. Applied in order, after `--where`.
    #[arg(long, value_name = "NAME=SQL", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Keep only these fields, in this order; `*` matches any characters. Applied after `--set`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    keep: Vec<String>,
    /// The type of a column: int, float, bool, timestamp, json or text. Without it, columns of CSV are text.
    /// May be given several times.
    #[arg(long = "type", value_name = "NAME=TYPE", value_parser = pair)]
    types: Vec<(String, String)>,
    /// The character between the values of CSV. Without it, a comma.
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<String>,
    /// The character set of the rows, such as `latin1`, `utf-16` or `shift_jis`. Rows are written in UTF-8.
    #[arg(long, value_name = "NAME")]
    charset: Option<String>,
    /// The names of the columns of CSV without a header.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// The template of a row with `--encode text`, for example `"{name}: {age}"`.
    #[arg(long, value_name = "TEXT")]
    template: Option<String>,
    /// Allow rows to be written in any order.
    #[arg(long)]
    unordered: bool,
}

/// The state from which a later copy resumes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Resuming")]
struct State {
    /// Keep the state from which a later copy resumes in this folder, also after this copy has ended. The
    /// next copy then copies only newer objects. Without it, the state is kept below
    /// `$XDG_STATE_HOME/thalweg/copies` or `~/.local/state/thalweg/copies` until everything is copied.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Restart, and ignore the state of an earlier copy.
    #[arg(long)]
    restart: bool,
    /// Keep no state: an interrupted copy restarts.
    #[arg(long, conflicts_with_all = ["state", "restart"])]
    no_resume: bool,
}

/// The concurrency of a copy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Concurrency")]
struct Pace {
    /// `auto` adapts the concurrency (the default). `sequential` makes one request at a time. `parallel=N`
    /// has N pairs of a reader and a writer (10 without N). `channel` has separate readers and writers, with
    /// a queue between them.
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// How many ranges to read at the same time.
    #[arg(long, value_name = "N", value_parser = positive)]
    readers: Option<usize>,
    /// How many parts to write at the same time.
    #[arg(long, value_name = "N", value_parser = positive)]
    writers: Option<usize>,
    /// How many slices may be read but not yet processed.
    #[arg(long, value_name = "N")]
    queue: Option<usize>,
    /// The size of a read request for rows, for example `8MiB`.
    #[arg(long, value_name = "SIZE")]
    slice_size: Option<String>,
    /// The size of a written part, for example `16MiB`.
    #[arg(long, value_name = "SIZE")]
    part_size: Option<String>,
}

/// The action for symbolic links.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Symlinks {
    /// Copy files through links that stay in the folder.
    Inside,
    /// Copy files through all links.
    Files,
}

/// The treatment of an object that exists.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Existing {
    /// Replace it.
    Replace,
    /// Replace a file that has another size or is older.
    Update,
    /// Leave it alone.
    Skip,
    /// Do not copy the file, which is an error.
    Error,
}

/// The form in which rows are read.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Parse {
    /// Apache Avro: object container files.
    Avro,
    /// Comma-separated values; the first record names the columns.
    Csv,
    /// Each line is a row.
    Lines,
    /// Each line is a JSON object.
    #[value(alias = "json")]
    Jsonl,
}

/// The form in which rows are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Encode {
    /// A JSON object a line.
    #[value(alias = "jsonl")]
    Json,
    /// Comma-separated values, after a line of names.
    Csv,
    /// `key=value` pairs.
    Logfmt,
    /// A text built from `--template`.
    Text,
    /// A Parquet table; its columns are those of the first rows.
    Parquet,
    /// As they were read.
    Raw,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("it must be a name, `=`, and a value".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "it must be 1 or more".to_owned())
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let show = Show { json: arguments.json, quiet: arguments.quiet, ..Show::default() };
    let prints_config = arguments.print_config;
    let options = CopyOptions::from(arguments);
    if prints_config {
        thalweg_frontend::print_config(&options)
    } else {
        thalweg_frontend::copy(&options, &show)
    }
}

impl From<Arguments> for CopyOptions {
    fn from(arguments: Arguments) -> Self {
        let Arguments { rows, state, pace, .. } = arguments;
        Self {
            from: arguments.from,
            to: arguments.to,
            include: arguments.include,
            exclude: arguments.exclude,
            symlinks: arguments.symlinks.map(Into::into),
            existing: arguments.existing.map(Into::into),
            content_type: arguments.content_type,
            dry_run: arguments.dry_run,
            memory: arguments.memory,
            threads: arguments.threads.map(usize::from),
            strict: arguments.strict,
            rows: rows.into(),
            state: copy::StateOptions {
                state: state.state,
                restart: state.restart,
                no_resume: state.no_resume,
            },
            pace: copy::PaceOptions {
                mode: pace.mode,
                readers: pace.readers,
                writers: pace.writers,
                queue: pace.queue,
                slice_size: pace.slice_size,
                part_size: pace.part_size,
            },
        }
    }
}

impl From<Rows> for copy::Rows {
    fn from(rows: Rows) -> Self {
        Self {
            parse: rows.parse.map(Into::into),
            encode: rows.encode.map(Into::into),
            condition: rows.condition,
            set: rows.set,
            keep: rows.keep,
            types: rows.types,
            delimiter: rows.delimiter,
            charset: rows.charset,
            columns: rows.columns,
            template: rows.template,
            unordered: rows.unordered,
        }
    }
}

impl From<Existing> for copy::Existing {
    fn from(existing: Existing) -> Self {
        match existing {
            Existing::Replace => Self::Replace,
            Existing::Update => Self::Update,
            Existing::Skip => Self::Skip,
            Existing::Error => Self::Error,
        }
    }
}

impl From<Symlinks> for copy::ObjectLinks {
    fn from(symlinks: Symlinks) -> Self {
        match symlinks {
            Symlinks::Inside => Self::Inside,
            Symlinks::Files => Self::Files,
        }
    }
}

impl From<Parse> for copy::Parse {
    fn from(parse: Parse) -> Self {
        match parse {
            Parse::Avro => Self::Avro,
            Parse::Csv => Self::Csv,
            Parse::Lines => Self::Lines,
            Parse::Jsonl => Self::Jsonl,
        }
    }
}

impl From<Encode> for copy::Encode {
    fn from(encode: Encode) -> Self {
        match encode {
            Encode::Json => Self::Json,
            Encode::Csv => Self::Csv,
            Encode::Logfmt => Self::Logfmt,
            Encode::Text => Self::Text,
            Encode::Parquet => Self::Parquet,
            Encode::Raw => Self::Raw,
        }
    }
}
