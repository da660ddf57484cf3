//! Translates the functions of Go's templates.

/// Translates a call. Its filters `go_…` belong to the transform `template`.
///
/// # Errors
/// A reason for a call that Go does not accept either.
pub(super) fn function(name: &str, values: &[String]) -> Result<String, String> {
    let compared = |operator: &str| match values {
        [left, right] => Ok(format!("({left} {operator} {right})")),
        _ => Err(format!("`{name}` compares two values.")),
    };
    let single = |form: &dyn Fn(&str) -> String| match values {
        [value] => Ok(form(value)),
        _ => Err(format!("`{name}` accepts one value.")),
    };
    match (name, values) {
        ("true" | "false", []) => Ok(name.to_owned()),
        ("nil", []) => Ok("none".to_owned()),
        ("and" | "or", [_, ..]) => Ok(format!("({})", values.join(&format!(" {name} ")))),
        ("not", _) => single(&|value| format!("(not {value})")),
        ("eq", [value, others @ ..]) if others.len() > 1 => {
            Ok(format!("({value} in [{}])", others.join(", ")))
        }
        ("eq", _) => compared("=="),
        ("ne", _) => compared("!="),
        ("lt", _) => compared("<"),
        ("le", _) => compared("<="),
        ("gt", _) => compared(">"),
        ("ge", _) => compared(">="),
        ("len", _) => single(&|value| format!("{value}|length")),
        ("index", [value, steps @ ..]) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("[{step}]")).collect();
            Ok(format!("{value}{}", steps.concat()))
        }
        ("html" | "js" | "print" | "println" | "printf" | "slice" | "urlquery", [value, others @ ..]) => {
            Ok(filtered(&format!("go_{name}"), value, others))
        }
        // A field is never a function, so gollum could not render such a template.
        ("call", [_, ..]) => Ok("\"a field is not a function\"|go_fail".to_owned()),
        _ => Err(format!("The function `{name}` has no equivalent here.")),
    }
}

fn filtered(filter: &str, value: &str, others: &[String]) -> String {
    match others {
        [] => format!("({value}|{filter})"),
        others => format!("({value}|{filter}({}))", others.join(", ")),
    }
}
