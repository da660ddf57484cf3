//! Translates the subset of Go's templates that commands need: variables with text around them.

use thalweg_config::nearest;

/// Go's variables and their names here.
const VARIABLES: [(&str, &str); 8] = [
    ("AbsolutePath", "path"),
    ("Filename", "name"),
    ("Basename", "stem"),
    ("Extension", "suffix"),
    ("OriginalAbsolutePath", "original_path"),
    ("OriginalFilename", "original_name"),
    ("OriginalBasename", "original_stem"),
    ("OriginalExtension", "original_suffix"),
];

/// A part of a template that cannot be expressed, with advice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inexpressible {
    pub(super) message: String,
    pub(super) help: String,
}

/// Returns the translated template: variables become `{path}` and the like, literal braces are doubled.
pub(super) fn translated(template: &str) -> Result<String, Inexpressible> {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        literal(before, &mut out);
        let Some((action, after)) = after.split_once("}}") else {
            let message = "This template has a `{{` without its `}}`.".to_owned();
            return Err(Inexpressible { message, help: variables() });
        };
        out.push('{');
        out.push_str(variable(action.trim())?);
        out.push('}');
        rest = after;
    }
    literal(rest, &mut out);
    Ok(out)
}

fn literal(text: &str, out: &mut String) {
    for character in text.chars() {
        if matches!(character, '{' | '}') {
            out.push(character);
        }
        out.push(character);
    }
}

fn variable(action: &str) -> Result<&'static str, Inexpressible> {
    let name = action.strip_prefix('.').unwrap_or("");
    if name.is_empty() || !name.chars().all(|character| character.is_alphanumeric() || character == '_') {
        let message =
            format!("`{{{{{action}}}}}` is not a variable; templates here can contain only variables.");
        return Err(Inexpressible { message, help: variables() });
    }
    match VARIABLES.iter().find(|(known, _)| *known == name) {
        Some((_, ours)) => Ok(ours),
        None => {
            let help = match nearest(name, VARIABLES.map(|(name, _)| name)) {
                Some(near) => format!("Did you mean `{{{{.{near}}}}}`?"),
                None => variables(),
            };
            Err(Inexpressible { message: format!("There is no variable `{{{{.{name}}}}}`."), help })
        }
    }
}

/// The variables that a template may have, as a sentence.
pub(super) fn variables() -> String {
    let list: Vec<String> = VARIABLES.iter().map(|(name, _)| format!("`{{{{.{name}}}}}`")).collect();
    format!("There are {}.", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn variables_have_our_names_and_braces_are_kept() {
        let all = "{{.AbsolutePath}} {{ .Filename }} {{.Basename}}{{.Extension}} \
                   {{.OriginalAbsolutePath}} {{.OriginalFilename}} {{.OriginalBasename}}{{.OriginalExtension}}";
        assert_eq!(
            translated(all).unwrap(),
            "{path} {name} {stem}{suffix} {original_path} {original_name} {original_stem}{original_suffix}"
        );
        assert_eq!(translated("{a} }} ü").unwrap(), "{{a}} }}}} ü");
        assert_eq!(translated("").unwrap(), "");
    }

    #[test]
    fn what_is_not_a_variable_is_refused() {
        let message = |template: &str| translated(template).unwrap_err().message;
        assert_eq!(message("{{.FileName}}"), "There is no variable `{{.FileName}}`.");
        assert_eq!(message("{{"), "This template has a `{{` without its `}}`.");
        for action in ["if .Filename", ".Filename | printf", "", ".", "- .Filename", "/* a */"] {
            let template = format!("{{{{{action}}}}}");
            let expected =
                format!("`{template}` is not a variable; templates here can contain only variables.");
            assert_eq!(message(&template), expected);
        }
        assert_eq!(translated("{{.FileName}}").unwrap_err().help, "Did you mean `{{.Filename}}`?");
    }
}
