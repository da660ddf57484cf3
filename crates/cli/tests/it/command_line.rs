//! The command line itself: versions, completion, the page of all commands, names that do not exist.

use std::path::Path;

use crate::common::House;

#[test]
fn the_version_names_the_commit_and_the_machine() {
    let house = House::with(&[]);
    let (short, long) = (house.run_well(&["-V"]).out, house.run_well(&["--version"]).out);
    assert!(
        short.starts_with("thalweg 0.") && short.ends_with(")\n") && short.lines().count() == 1,
        "{short}"
    );
    let names_its_origin = short.contains("source archive") || short.contains("-");
    assert!(names_its_origin && short.contains(std::env::consts::ARCH), "{short}");
    assert!(long.starts_with(short.trim_end()), "{long}");
    if cfg!(feature = "stores") {
        assert!(long.contains("\nfeatures: ") && long.contains("stores"), "{long}");
    }
}

/// Returns the candidates for the last of these words, as bash gets them.
fn completed(house: &House, words: &[&str]) -> Vec<String> {
    completed_in(house, "bash", words)
}

/// Returns the candidates for the last of these words, as a shell gets them.
fn completed_in(house: &House, shell: &str, words: &[&str]) -> Vec<String> {
    let mut command = house.command(&[&["--"], words].concat());
    let index = (words.len() - 1).to_string();
    command.env("THALWEG_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", index);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_names() {
    let text = "sources: { in: { stdin: {} } }\npipelines: { main: { from: in, to: out }, more: { from: in, to: out } }\nsinks: { out: { stdout: {} } }\n";
    let house = House::with(&[("c.yaml", text), ("notes.txt", "")]);
    assert!(completed(&house, &["thalweg", "components", "parse_js"]).contains(&"parse_json".to_owned()));
    assert!(completed(&house, &["thalweg", "functions", "split_p"]).contains(&"split_part".to_owned()));
    assert_eq!(completed(&house, &["thalweg", "new", "acc"]), ["access-log"]);
    assert_eq!(completed(&house, &["thalweg", "run", "c"]), ["c.yaml"]);
    assert_eq!(completed(&house, &["thalweg", "run", "n"]), [""; 0]);
    assert_eq!(completed(&house, &["thalweg", "run", "c.yaml", "m"]), ["main", "more"]);
}

#[test]
fn a_hostile_name_is_completed_as_one_quoted_word_or_not_at_all() {
    let house = House::with(&[
        ("a$(touch RUN).yaml", ""),
        ("a`touch RUN`;*.yaml", ""),
        ("b c.yaml", ""),
        ("x\u{1b}]0;t\u{7}.yaml", ""),
        ("y\nz.yaml", ""),
        ("u\u{b}v.yaml", ""),
    ]);
    for (shell, expected) in [
        ("bash", [r"a\$\(touch\ RUN\).yaml", r"a\`touch\ RUN\`\;\*.yaml", r"b\ c.yaml"]),
        ("powershell", ["'a$(touch RUN).yaml'", "'a`touch RUN`;*.yaml'", "'b c.yaml'"]),
        ("zsh", ["a$(touch RUN).yaml", "a`touch RUN`;*.yaml", "b c.yaml"]),
        ("fish", ["a$(touch RUN).yaml", "a`touch RUN`;*.yaml", "b c.yaml"]),
    ] {
        let mut found = completed_in(&house, shell, &["thalweg", "check", ""]);
        found.retain(|candidate| candidate.contains("yaml"));
        assert_eq!(found, expected, "{shell}");
    }
    let names = "\"p`x`\", \"q r\", \"s\\e\", \"t\\vu\", good";
    let pipelines = names.split(", ").map(|name| format!("{name}: {{ from: in, to: out }}"));
    let text = format!("pipelines: {{ {} }}\n", pipelines.collect::<Vec<_>>().join(", "));
    house.write("c.yaml", text.as_bytes());
    let mut found = completed(&house, &["thalweg", "run", "c.yaml", ""]);
    found.retain(|candidate| !candidate.starts_with('-'));
    assert_eq!(found, ["good"]);
}

#[test]
#[cfg(unix)]
fn bash_inserts_the_name_of_a_file_and_runs_nothing_in_it() {
    use std::process::Command;

    let name = "a$(touch RUN)`touch RUN`*.yaml";
    let house = House::with(&[(name, "")]);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_thalweg"), house.path().join("thalweg")).unwrap();
    let script = "eval \"$(thalweg completions bash)\"
        COMP_WORDS=(thalweg check a) COMP_CWORD=2
        _thalweg_complete thalweg a check
        eval \"printf %s ${COMPREPLY[0]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script]).current_dir(house.path());
    let path = format!("{}:{}", house.path().display(), std::env::var("PATH").unwrap_or_default());
    let output = bash.env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, name, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!house.path().join("RUN").exists());
}

#[test]
#[cfg(all(feature = "stores", feature = "avif", feature = "geoip", feature = "parquet"))]
fn the_page_of_commands_is_fresh() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let written = std::fs::read_to_string(page).unwrap_or_default();
    assert!(written == House::with(&[]).run_well(&["reference"]).out, "run `make generate`");
}

#[test]
fn the_page_has_every_command_and_option() {
    let page = House::with(&[]).run_well(&["reference"]).out;
    for part in [
        "# Commands\n",
        "| 2 | the configuration or the command line is wrong |",
        "\n## `thalweg run`\n",
        "\n### `thalweg errors clear`\n",
        "| `--limit N` |",
        "\nCompatibility with capyfile and gollum:\n",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("thalweg reference"), "a hidden command is shown");
}

#[test]
fn man_pages_are_written_for_all_commands() {
    let house = House::with(&[]);
    house.run_well(&["reference", "--man", "man"]);
    for name in ["thalweg", "thalweg-run", "thalweg-errors-clear"] {
        let page = house.read(&format!("man/{name}.1"));
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
}

#[test]
fn unknown_names_are_answered_without_a_long_list() {
    let house = House::with(&[]);
    for (arguments, answer) in [
        (["functions", "uper"], "error: there is no function `uper`. Did you mean `upper`?\n"),
        (["functions", "qqqqqqq"], "error: there is no function `qqqqqqq`. `thalweg functions` lists all\n"),
        (["components", "blackhole"], "error: there is no component called `blackhole`. Use `discard`\n"),
        (
            ["components", "qqqqqqq"],
            "error: there is no component called `qqqqqqq`. `thalweg components` lists all\n",
        ),
    ] {
        let said = house.run(&arguments);
        assert_eq!((said.code, said.err.as_str()), (Some(2), answer));
    }
}

#[test]
fn an_argument_in_a_message_cannot_command_the_terminal() {
    let house = House::with(&[]);
    for arguments in [&["run", "--\u{9b}31m\u{202e}x"][..], &["pipe", "--memory", "\u{9b}2J\u{202e}"]] {
        let said = house.run(arguments);
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains(r"\u{9b}") && said.err.contains(r"\u{202e}"), "{}", said.err);
        assert!(!said.err.contains(['\u{9b}', '\u{202e}']), "{}", said.err);
    }
}

#[test]
fn hand_overs_are_for_those_who_ask() {
    let text = "sources: { in: { generate: { lines: [x], count: 1 } } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: { discard: {} } }\n";
    let house = House::with(&[("c.yaml", text)]);
    let said = house.run_well(&["run", "c.yaml"]).err;
    assert!(!said.contains("hand-over") && said.contains(" cores\n"), "{said}");
    let said = house.run_well(&["run", "c.yaml", "-v"]).err;
    assert!(said.contains("hand-over"), "{said}");
}

#[test]
fn functions_are_found_by_words_of_their_descriptions() {
    let house = House::with(&[]);
    let said = house.run_well(&["functions", "parse", "date"]);
    assert!(said.out.contains("`thalweg functions NAME` shows one"), "{}", said.out);
    assert!(house.run_well(&["functions", "regexp", "replace"]).out.contains("regexp_replace("));
    let said = house.run(&["functions", "xyzzy"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("`thalweg functions` lists all"), "{}", said.err);
}
