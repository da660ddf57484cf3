//! `thalweg support-bundle`: what others need to find a fault, in one file, without secrets and without data.
//!
//! A file is made of texts that this program prints elsewhere too. A configuration is written as its author
//! wrote it, before variables and files take their places in it. Beyond what every text of this program
//! leaves out, it has no value of an option that is named like a secret, however short it is, no value of a
//! header or of the environment, and no argument of a program, and mistakes have no lines of it. Nothing of
//! the state but the names and sizes of its files is read, so a bundle can be made while a run uses it.

mod archive;
mod host;
mod words;

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use thalweg_config::{Comments, Node, Value, write};
use thalweg_job::{Configuration, LoadError};
use thalweg_redact::{is_named_like_a_secret, redacted};

use crate::check::{CheckOptions, described};
use crate::exit::{CommandError, Exit};
use crate::format::{bytes, counted};
use crate::print;
use crate::remote::client::{Client, Place, TIMEOUT};
use archive::Archive;

/// At most this many files of a state are listed.
const MOST_FILES: usize = 10_000;
/// Only this user may read the bundle.
const MODE: u32 = 0o600;

/// The parts of a bundle, and its file.
#[derive(Debug, Clone, Default)]
pub struct BundleOptions {
    /// The configurations.
    pub configs: Vec<PathBuf>,
    /// The state folder, if the run was given one.
    pub state: Option<PathBuf>,
    /// Where a run serves its metrics.
    pub metrics: Option<SocketAddr>,
    /// The new file.
    pub output: PathBuf,
    /// The version and the features of the program.
    pub version: String,
}

/// Writes a bundle, and prints what is in it.
///
/// # Errors
/// If the file exists or cannot be written. A configuration with mistakes is no error: its mistakes are in
/// the bundle.
pub fn support_bundle(options: &BundleOptions) -> Result<Exit, CommandError> {
    if options.state.is_some() && options.configs.len() > 1 {
        let text = "`--state` is the state of one configuration: make a bundle for each";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let files = files(options);
    let shown = options.output.display();
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&options.output);
    let written = file.and_then(|file| {
        let mut archive = Archive::new(file);
        files.iter().try_for_each(|(name, text)| archive.add(name, text.as_bytes()))?;
        archive.end()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            CommandError::Usage(format!("`{shown}` exists, and is left as it is; name another file"))
        }
        _ => CommandError::Failed(format!("`{shown}` cannot be written: {error}")),
    })?;
    let mut text = String::new();
    for (name, content) in &files {
        text += &format!("{:>10}  {name}\n", bytes(content.len() as u64));
    }
    let count = counted(files.len() as u64, "file");
    print::show(&format!("{text}wrote {shown} with {count}: look through it before you pass it on\n"))?;
    Ok(Exit::Done)
}

/// The names and texts of a bundle, without secrets.
fn files(options: &BundleOptions) -> Vec<(String, String)> {
    let mut files = vec![
        ("version.txt".to_owned(), format!("{}\n", options.version)),
        ("host.json".to_owned(), pretty(&host::facts())),
    ];
    for (number, path) in (1..).zip(&options.configs) {
        let mut add = |name: &str, kind: &str, text: String| {
            files.push((format!("{name}-{number}.{kind}"), text));
        };
        match Configuration::open(path) {
            Ok(configuration) => of_configuration(&configuration, options.state.as_deref(), &mut add),
            Err(error) => add("mistakes", "txt", text_of(&error)),
        }
    }
    if let Some(address) = options.metrics {
        let run = Client { place: Place::Address(address.to_string(), vec![address]), token: None };
        for name in ["metrics", "health", "ready"] {
            let answer = run.ask("GET", &format!("/{name}"), TIMEOUT);
            let text = answer.map_or_else(|error| format!("no answer: {error}\n"), |answer| answer.body);
            files.push((format!("{name}.txt"), text));
        }
    }
    // After all configurations are read: a secret of one may be in a text about another.
    for (_, text) in &mut files {
        *text = words::without_announced(&redacted(text));
    }
    files
}

fn of_configuration(
    configuration: &Configuration,
    state: Option<&Path>,
    add: &mut dyn FnMut(&str, &str, String),
) {
    let root = without_secrets(configuration.document().root(), Place::Open);
    let text = write(&root, &Comments::default());
    add("configuration", "yaml", format!("# {}\n\n{text}", configuration.name()));
    match configuration.check(&thalweg_job::registry()) {
        Ok(job) => {
            add("plan", "txt", described(&job, &CheckOptions { plan: true, ..CheckOptions::default() }))
        }
        Err(error) => add("mistakes", "txt", text_of(&error)),
    }
    match configuration.state_dir(state) {
        Ok(state_dir) => add("state", "json", pretty(&sizes(&state_dir.folder))),
        Err(error) => add("state", "txt", text_of(&error)),
    }
}

fn pretty(value: &Json) -> String {
    format!("{value:#}\n")
}

/// Returns an error as text. Mistakes have no lines of the configuration: before it is parsed, the secrets in
/// them are not known.
fn text_of(error: &LoadError) -> String {
    format!("{error}\n")
}

/// Where a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Open,
    /// Below an option that is named like a secret, or below `auth`.
    Secret,
    /// Below `headers` or `env`, whose names are the user's, or below `args` or another argument of a
    /// program.
    Hidden,
}

/// Returns a tree with `…` in place of each value that is named like a secret. The name of a variable or of a
/// file stays.
fn without_secrets(node: &Node, place: Place) -> Node {
    let value = match &node.value {
        Value::String(text) if text.contains('$') && (place == Place::Open || is_reference(text)) => {
            return Node::with_variables(node.span, text);
        }
        Value::Mapping(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let is_plain = ["user", "mechanism"].contains(&key.name.as_str())
                    || key.name.ends_with("file")
                    || key.name.ends_with("path");
                let place = match place {
                    Place::Open if key.name == "command" => return (key.clone(), without_arguments(value)),
                    Place::Hidden => Place::Hidden,
                    _ if ["headers", "env", "args"].contains(&key.name.as_str()) => Place::Hidden,
                    Place::Secret if is_plain => Place::Open,
                    _ if key.name == "auth" || is_named_like_a_secret(&key.name) => Place::Secret,
                    place => place,
                };
                (key.clone(), without_secrets(value, place))
            });
            Value::Mapping(entries.collect())
        }
        Value::Sequence(items) => {
            Value::Sequence(items.iter().map(|item| without_secrets(item, place)).collect())
        }
        Value::Null | Value::Bool(_) => return node.clone(),
        _ if place == Place::Open => return node.clone(),
        Value::Integer(_) | Value::Float(_) | Value::String(_) => Value::String("…".to_owned()),
    };
    Node::new(node.span, value)
}

/// Returns a command with `…` in place of each argument. The program stays.
fn without_arguments(command: &Node) -> Node {
    let value = match &command.value {
        Value::Sequence(items) => {
            let places = std::iter::once(Place::Open).chain(std::iter::repeat(Place::Hidden));
            let shown = items.iter().zip(places).map(|(item, place)| without_secrets(item, place));
            Value::Sequence(shown.collect())
        }
        Value::String(text) => match text.trim_start().split_once(char::is_whitespace) {
            Some((program, _)) => return Node::with_variables(command.span, &format!("{program} …")),
            None => return without_secrets(command, Place::Open),
        },
        _ => return without_secrets(command, Place::Open),
    };
    Node::new(command.span, value)
}

/// True if a text is one `${…}`.
fn is_reference(text: &str) -> bool {
    let inner = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
    // A default value after a colon may be a secret.
    inner.is_some_and(|inner| !inner.contains(['$', '{', '}']) && !inner.contains(":-"))
}

/// The names and sizes of the files of a state.
fn sizes(folder: &Path) -> Json {
    let mut files = Vec::new();
    let mut total = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.is_dir() {
                folders.push(path);
            } else {
                total += found.len();
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
                files.push(json!({ "name": name, "bytes": found.len() }));
            }
            if files.len() >= MOST_FILES {
                folders.clear();
                break;
            }
        }
    }
    json!({ "folder": folder.to_string_lossy(), "exists": folder.is_dir(), "bytes": total, "files": files })
}

#[cfg(test)]
mod tests {
    use thalweg_config::Document;

    use super::*;

    #[test]
    fn values_that_are_named_like_secrets_are_left_out_however_short_they_are() {
        let text = "\
sinks:
  a: { http: { url: https://h/x, auth: { user: bob, password: abc, token: [1, x] }, tls: { key_file: k.pem } } }
  b: { http: { url: https://h/x, auth: { bearer: '${TOKEN}' }, headers: { X-Api-Key: k1, Accept: text } } }
  c: { http: { url: https://h/x, auth: { bearer: '${TOKEN:-def}' } } }
  d: { http: { url: https://h/x, auth: xyz, password: 'pre${PW}' } }
";
        let document = Document::parse("c.yaml", text).unwrap();
        let shown = write(&without_secrets(document.root(), Place::Open), &Comments::default());
        for secret in ["abc", "k1", "def", "xyz", "pre", "[1"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        for plain in ["bob", "k.pem", "${TOKEN}", "https://h/x"] {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
    }

    #[test]
    fn headers_the_environment_and_arguments_are_left_out() {
        let text = "\
a: { exec: { command: [curl, -H, 'Authorization: Bearer q1', '${ARGUMENT}'], env: { DB_PASS: q2, KEY_FILE: q3 } } }
b: { http: { headers: { X-Auth: q4, X-Key: q5 } } }
c: { exec: { command: 'psql -W q6' } }
d: { exec: { command: gpg, args: ['--passphrase', q7, '${PASSPHRASE}'] } }
e: { exec: { command: tool, args: q8 } }
";
        let document = Document::parse("c.yaml", text).unwrap();
        let shown = write(&without_secrets(document.root(), Place::Open), &Comments::default());
        for secret in ["q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        for plain in ["curl", "${ARGUMENT}", "psql", "DB_PASS", "X-Auth", "gpg", "${PASSPHRASE}"] {
            assert!(shown.contains(plain), "{plain}: {shown}");
        }
    }

    #[test]
    fn the_files_of_a_state_are_listed_with_their_sizes_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("buffers")).unwrap();
        fs::write(folder.path().join("buffers/1.open"), "secret").unwrap();
        let found = sizes(folder.path());
        assert_eq!(found["bytes"], 6);
        assert_eq!(found["files"], json!([{ "name": "buffers/1.open", "bytes": 6 }]));
        assert_eq!(sizes(&folder.path().join("none"))["exists"], false);
    }

    #[test]
    fn mistakes_have_no_lines_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("c.yaml");
        let start = "pipelines: { main: { from: in, to: out } }\nsources: { in: { stdin: {} } }\nsinks:\n";
        // The first cannot be parsed. The password of the second is too short to be found in texts.
        for (sinks, mistake) in [
            ("  out: { http: { url: h, auth: { user: u, password: Unparsed-1a } }\n", "`{`"),
            ("  out: { http: { url: h, auth: { user: u, password: q9Z }, addres: x } }\n", "`addres`"),
        ] {
            fs::write(&config, format!("{start}{sinks}")).unwrap();
            let options = BundleOptions { configs: vec![config.clone()], ..BundleOptions::default() };
            let files = files(&options);
            let (_, mistakes) = files.iter().find(|(name, _)| name == "mistakes-1.txt").unwrap();
            assert!(mistakes.contains("c.yaml:4:") && mistakes.contains(mistake), "{mistakes}");
            for (name, text) in &files {
                assert!(!text.contains("Unparsed-1a") && !text.contains("q9Z"), "{name}: {text}");
            }
        }
    }
}
