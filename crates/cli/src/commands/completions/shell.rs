//! The shells: the script of each, and how a candidate is written for it.
//!
//! Others choose the names of files. bash and PowerShell insert candidates as they are, so a file called
//! `a$(reboot).yaml` would run a program with the completed command. Candidates are quoted for these two;
//! elvish, fish and zsh quote what they insert. Names with characters that are not seen are never offered.
//!
//! The scripts come from `clap_complete`, except for bash: its script splits candidates into words and
//! expands the patterns in them. (Rejected: `complete -o filenames`, with which bash quotes. It takes every
//! candidate for a file, and appends `/` to a command that has the name of a folder.)

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, ValueEnum};
use clap_complete::engine::complete;
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use thalweg_redact::is_unseen;

/// The variable in which a script passes the position of the word to complete.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// The script for bash. Each line of the answer is a candidate.
const BASH: &str = r#"
_thalweg_complete() {
    local candidate words=("${COMP_WORDS[@]}")
    # bash 3 does not split the words at `:` and `=`, where `$2` begins.
    [[ ${BASH_VERSINFO[0]} -lt 4 ]] || words[COMP_CWORD]=$2
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("$candidate")
    done < <(INDEX=$COMP_CWORD VARIABLE=bash COMPLETER -- "${words[@]}")
    # A value follows these characters without a blank.
    if compopt +o nospace 2> /dev/null && [[ ${COMPREPLY-} == *[=/:] ]]; then
        compopt -o nospace
    fi
}
complete -o nospace -o bashdefault -o nosort -F _thalweg_complete BIN 2> /dev/null ||
    complete -o nospace -o bashdefault -F _thalweg_complete BIN
"#;

/// A shell with completion.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[expect(clippy::enum_variant_names, reason = "PowerShell is the name of a shell")]
pub enum Shell {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Zsh,
}

impl Shell {
    /// The shell in `clap_complete`.
    fn adapter(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Elvish => &Elvish,
            Self::Fish => &Fish,
            Self::PowerShell => &Powershell,
            Self::Zsh => &Zsh,
        }
    }

    /// Returns a candidate as the script expects it, with its description if the shell shows it.
    fn line(self, value: &str, help: Option<&str>) -> String {
        let described = |value: Cow<'_, str>, between: char| match help {
            Some(help) => format!("{value}{between}{help}"),
            None => value.into_owned(),
        };
        match self {
            Self::Bash => bash_word(value),
            Self::Elvish => value.to_owned(),
            Self::Fish => described(value.into(), '\t'),
            Self::PowerShell => described(powershell_word(value), '\t'),
            // A colon ends the value.
            Self::Zsh => described(value.replace('\\', "\\\\").replace(':', "\\:").into(), ':'),
        }
    }
}

impl EnvCompleter for Shell {
    fn name(&self) -> &'static str {
        self.adapter().name()
    }

    fn is(&self, name: &str) -> bool {
        self.adapter().is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        program: &str,
        completer: &str,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        if !matches!(self, Self::Bash) {
            return self.adapter().write_registration(variable, name, program, completer, to);
        }
        let script = BASH.trim_start().replace("INDEX=", &format!("{INDEX}="));
        let script = script.replace("VARIABLE", variable).replace("BIN", &bash_word(program));
        to.write_all(script.replace("COMPLETER", &bash_word(completer)).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        mut words: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let index = match self {
            Self::Fish | Self::PowerShell => words.len().saturating_sub(1),
            Self::Bash | Self::Elvish | Self::Zsh => {
                std::env::var(INDEX).ok().and_then(|index| index.parse().ok()).unwrap_or_default()
            }
        };
        // zsh leaves out a last word that is empty.
        if words.len() == index {
            words.push(OsString::new());
        }
        for candidate in complete(command, words, index, folder)? {
            let Some(value) = candidate.get_value().to_str().filter(|value| !value.contains(is_unseen))
            else {
                continue;
            };
            let help = candidate.get_help().map(ToString::to_string);
            let first_line = help.as_deref().and_then(|help| help.lines().next());
            writeln!(to, "{}", self.line(value, first_line))?;
        }
        Ok(())
    }
}

/// Returns a text as one word of bash. `~/` at its start stays: it is the user's folder.
fn bash_word(text: &str) -> String {
    let (start, rest) = text.split_at(if text.starts_with("~/") { 2 } else { 0 });
    let mut word = start.to_owned();
    for character in rest.chars() {
        let is_plain = !character.is_ascii() || character.is_ascii_alphanumeric();
        if !is_plain && !"_-./:=@%+,".contains(character) {
            word.push('\\');
        }
        word.push(character);
    }
    word
}

/// Returns a text as one word of PowerShell.
fn powershell_word(text: &str) -> Cow<'_, str> {
    /// PowerShell takes each of them for an apostrophe.
    const APOSTROPHES: [char; 5] = ['\'', '\u{2018}', '\u{2019}', '\u{201a}', '\u{201b}'];
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=\\~".contains(c)) {
        return text.into();
    }
    let mut word = String::from("'");
    for character in text.chars() {
        word.extend(APOSTROPHES.contains(&character).then_some(character));
        word.push(character);
    }
    word.push('\'');
    word.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_for_the_shells_that_insert_it_as_it_is() {
        for (text, bash, powershell) in [
            ("logs/a-1.yaml", "logs/a-1.yaml", "logs/a-1.yaml"),
            ("~/a b", r"~/a\ b", "'~/a b'"),
            ("~root", r"\~root", "~root"),
            ("--state=x", "--state=x", "--state=x"),
            ("Öl.yaml", "Öl.yaml", "'Öl.yaml'"),
            ("a$(b)`c`;d", r"a\$\(b\)\`c\`\;d", "'a$(b)`c`;d'"),
            ("it's \u{2019}$x", "it\\'s\\ \u{2019}\\$x", "'it''s \u{2019}\u{2019}$x'"),
            ("*?[!{}\"\\", r#"\*\?\[\!\{\}\"\\"#, r#"'*?[!{}"\'"#),
        ] {
            assert_eq!(bash_word(text), bash);
            assert_eq!(powershell_word(text), powershell);
        }
    }

    #[test]
    fn a_candidate_has_the_form_of_its_shell() {
        for (shell, line) in [
            (Shell::Bash, r"a:b\ c"),
            (Shell::Elvish, "a:b c"),
            (Shell::Fish, "a:b c\thelp"),
            (Shell::PowerShell, "'a:b c'\thelp"),
            (Shell::Zsh, r"a\:b c:help"),
        ] {
            assert_eq!(shell.line("a:b c", Some("help")), line);
        }
        assert_eq!(Shell::Zsh.line("a", None), "a");
    }
}
