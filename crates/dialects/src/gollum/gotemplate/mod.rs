//! Translates Go's text templates into minijinja's notation.
//!
//! Both print values between double braces and have conditions and loops. Go's dot becomes a variable. At the
//! top level it is the message itself, whose fields are plain names; inside `with` and `range` it is `dot1`,
//! `dot2` and so on. A construct without equivalent is rejected at its position.

mod tokens;

use tokens::{Kind, Token, quote, tokens};

/// A mistake, with its position in the template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateError {
    pub(super) message: String,
    pub(super) at: std::ops::Range<usize>,
}

/// Translates a template. `root` is the meaning of the dot at the top level: the name of a field, or empty
/// for the message.
pub(super) fn minijinja(template: &str, root: &str) -> Result<String, TemplateError> {
    let mut translator =
        Translator { out: String::new(), blocks: Vec::new(), dots: vec![root.to_owned()], made: 0 };
    let mut at = 0;
    while let Some(start) = template[at..].find("{{").map(|found| at + found) {
        translator.literal(&template[at..start]);
        let Some(length) = end_of(&template[start + 2..]) else {
            return Err(TemplateError {
                message: "A `{{` is never closed.".to_owned(),
                at: start..start + 2,
            });
        };
        let inside = &template[start + 2..start + 2 + length];
        translator.action(inside, start + 2)?;
        at = start + 2 + length + 2;
    }
    translator.literal(&template[at..]);
    match translator.blocks.pop() {
        Some(block) => {
            Err(TemplateError { message: format!("`{}` has no `end`.", block.word), at: block.at })
        }
        None => Ok(translator.out),
    }
}

/// Returns the offset of the closing braces, ignoring braces within quotes.
fn end_of(rest: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in rest.char_indices() {
        match quote {
            Some('"') if escaped => escaped = false,
            Some('"') if character == '\\' => escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if character == '"' || character == '`' => quote = Some(character),
            None if rest[index..].starts_with("}}") => return Some(index),
            None => {}
        }
    }
    None
}

struct Block {
    word: &'static str,
    at: std::ops::Range<usize>,
    closing: String,
    /// The number of dots before the block.
    dots: usize,
}

struct Translator {
    out: String,
    blocks: Vec<Block>,
    /// The meaning of the dot in each open block, innermost last. An empty name is the message.
    dots: Vec<String>,
    made: usize,
}

impl Translator {
    /// Writes the text between actions. Text that minijinja would interpret is wrapped in an expression.
    fn literal(&mut self, text: &str) {
        if text.contains("{%") || text.contains("{#") {
            let quoted = quote(text);
            self.out.push_str(&format!("{{{{ {quoted} }}}}"));
        } else {
            self.out.push_str(text);
        }
    }

    fn action(&mut self, inside: &str, at: usize) -> Result<(), TemplateError> {
        let left = if inside.starts_with("- ") { "-" } else { "" };
        let right = if inside.ends_with(" -") { "-" } else { "" };
        let body = inside.strip_prefix("- ").unwrap_or(inside);
        let body = body.strip_suffix(" -").unwrap_or(body);
        let whole = at..at + inside.len();
        if body.trim_start().starts_with("/*") {
            if !(left.is_empty() && right.is_empty()) {
                self.out.push_str(&format!("{{#{left} {right}#}}"));
            }
            return Ok(());
        }
        let tokens = tokens(body, at + (inside.len() - inside.strip_prefix("- ").unwrap_or(inside).len()))?;
        let word = match tokens.first() {
            Some(Token { kind: Kind::Word(word), .. }) => word.as_str(),
            Some(_) => "",
            None => {
                return Err(TemplateError {
                    message: "There is nothing between the braces.".to_owned(),
                    at: whole,
                });
            }
        };
        let rest = tokens.get(1..).unwrap_or_default();
        let opened = |open: String| format!("{{%{left} {open} {right}%}}");
        match word {
            "if" => {
                let condition = self.pipeline(rest, &whole)?;
                self.out.push_str(&opened(format!("if {condition}")));
                self.open("if", whole, "endif");
            }
            "with" => {
                let value = self.pipeline(rest, &whole)?;
                let dot = self.new_dot();
                self.out.push_str(&opened(format!("with {dot} = {value}")));
                self.out.push_str(&format!("{{% if {dot} %}}"));
                self.open("with", whole, "endif %}{% endwith");
                self.dots.push(dot);
            }
            "range" => {
                let (names, rest) = assigned(rest);
                let value = self.pipeline(rest, &whole)?;
                let dot = match names.as_slice() {
                    [name] => name.clone(),
                    _ => self.new_dot(),
                };
                let head = match names.as_slice() {
                    [key, value_name] => format!("for {key}, {value_name} in {value}|items"),
                    _ => format!("for {dot} in {value}"),
                };
                self.out.push_str(&opened(head));
                self.open("range", whole, "endfor");
                self.dots.push(names.get(1).cloned().unwrap_or(dot));
            }
            "else" => self.otherwise(rest, whole, &opened)?,
            "end" => {
                let Some(block) = self.blocks.pop() else {
                    return Err(TemplateError { message: "This `end` ends nothing.".to_owned(), at: whole });
                };
                self.dots.truncate(block.dots);
                self.out.push_str(&opened(block.closing));
            }
            "define" | "template" | "block" | "break" | "continue" => {
                let message = format!("`{word}` has no equivalent here.");
                return Err(TemplateError { message, at: whole });
            }
            _ => {
                let (names, rest) = assigned(&tokens);
                let mut value = self.pipeline(rest, &whole)?;
                if let ([], [Token { kind: Kind::Field(path), .. }]) = (names.as_slice(), rest)
                    && !path.is_empty()
                {
                    // Go writes this for a missing field.
                    value.push_str("|default(\"<no value>\")");
                }
                match names.first() {
                    Some(name) => self.out.push_str(&opened(format!("set {name} = {value}"))),
                    None => self.out.push_str(&format!("{{{{{left} {value} {right}}}}}")),
                }
            }
        }
        Ok(())
    }

    fn otherwise(
        &mut self,
        rest: &[Token],
        whole: std::ops::Range<usize>,
        opened: &dyn Fn(String) -> String,
    ) -> Result<(), TemplateError> {
        let Some((word, dots)) = self.blocks.last().map(|block| (block.word, block.dots)) else {
            return Err(TemplateError { message: "This `else` belongs to nothing.".to_owned(), at: whole });
        };
        self.dots.truncate(dots);
        match rest {
            [] => self.out.push_str(&opened("else".to_owned())),
            [Token { kind: Kind::Word(next), .. }, condition @ ..] if next == "if" && word == "if" => {
                let condition = self.pipeline(condition, &whole)?;
                self.out.push_str(&opened(format!("elif {condition}")));
            }
            _ => {
                let message = "After `else`, only `if` within an `if` can stand here.".to_owned();
                return Err(TemplateError { message, at: whole });
            }
        }
        Ok(())
    }

    fn open(&mut self, word: &'static str, at: std::ops::Range<usize>, closing: &str) {
        self.blocks.push(Block { word, at, closing: closing.to_owned(), dots: self.dots.len() });
    }

    fn new_dot(&mut self) -> String {
        self.made += 1;
        format!("dot{}", self.made)
    }

    /// Translates commands joined by bars: the result of one is the last argument of the next.
    fn pipeline(&self, tokens: &[Token], whole: &std::ops::Range<usize>) -> Result<String, TemplateError> {
        let mut value: Option<String> = None;
        for command in tokens.split(|token| token.kind == Kind::Bar) {
            let (mut arguments, places) = self.operands(command)?;
            if let Some(value) = value.take() {
                arguments.push(value);
            }
            value = Some(self.command(command, arguments, &places, whole)?);
        }
        value.ok_or_else(|| TemplateError { message: "A value is missing.".to_owned(), at: whole.clone() })
    }

    /// Translates the operands of a command; names of functions are left unchanged.
    fn operands(
        &self,
        tokens: &[Token],
    ) -> Result<(Vec<String>, Vec<std::ops::Range<usize>>), TemplateError> {
        let (mut found, mut places) = (Vec::new(), Vec::new());
        let mut index = 0;
        while let Some(token) = tokens.get(index) {
            places.push(token.at.clone());
            index += 1;
            found.push(match &token.kind {
                Kind::Open => {
                    let length = closing(&tokens[index..]).ok_or_else(|| TemplateError {
                        message: "A `(` is never closed.".to_owned(),
                        at: token.at.clone(),
                    })?;
                    let inner = self.pipeline(&tokens[index..index + length], &token.at)?;
                    index += length + 1;
                    format!("({inner})")
                }
                Kind::Close => {
                    return Err(TemplateError {
                        message: "A `)` without its `(`.".to_owned(),
                        at: token.at.clone(),
                    });
                }
                Kind::Field(path) => self.field(path, &token.at)?,
                Kind::Variable(name) => variable(name, &self.dots[0]),
                Kind::Word(word) => word.clone(),
                Kind::Literal(text) => text.clone(),
                Kind::Bar | Kind::Assign | Kind::Comma => {
                    let message = "This is not expected here.".to_owned();
                    return Err(TemplateError { message, at: token.at.clone() });
                }
            });
        }
        Ok((found, places))
    }

    fn field(&self, path: &str, at: &std::ops::Range<usize>) -> Result<String, TemplateError> {
        let dot = self.dots.last().map_or("", String::as_str);
        match (dot, path) {
            ("", "") => Err(TemplateError {
                message: "The whole message as `.` has no equivalent here.".to_owned(),
                at: at.clone(),
            }),
            ("", path) => Ok(path.to_owned()),
            (dot, "") => Ok(dot.to_owned()),
            (dot, path) => Ok(format!("{dot}.{path}")),
        }
    }

    fn command(
        &self,
        tokens: &[Token],
        arguments: Vec<String>,
        places: &[std::ops::Range<usize>],
        whole: &std::ops::Range<usize>,
    ) -> Result<String, TemplateError> {
        let at = || places.first().cloned().unwrap_or_else(|| whole.clone());
        let Some(Token { kind: Kind::Word(name), .. }) = tokens.first() else {
            return match arguments.as_slice() {
                [value] => Ok(value.clone()),
                _ => Err(TemplateError { message: "This is not a function.".to_owned(), at: at() }),
            };
        };
        let values = arguments.get(1..).unwrap_or_default();
        let joined = |operator: &str| format!("({})", values.join(&format!(" {operator} ")));
        let compared = |operator: &str| match values {
            [left, right] => Ok(format!("({left} {operator} {right})")),
            _ => Err(TemplateError { message: format!("`{name}` compares two values."), at: at() }),
        };
        let single = |form: &dyn Fn(&str) -> String| match values {
            [value] => Ok(form(value)),
            _ => Err(TemplateError { message: format!("`{name}` accepts one value."), at: at() }),
        };
        match (name.as_str(), values) {
            ("true" | "false", []) => Ok(name.clone()),
            ("nil", []) => Ok("none".to_owned()),
            ("and", [_, ..]) => Ok(joined("and")),
            ("or", [_, ..]) => Ok(joined("or")),
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
            ("html", _) => single(&|value| format!("{value}|e")),
            ("urlquery", _) => single(&|value| format!("{value}|urlencode")),
            ("index", [value, steps @ ..]) if !steps.is_empty() => {
                let steps: Vec<String> = steps.iter().map(|step| format!("[{step}]")).collect();
                Ok(format!("{value}{}", steps.concat()))
            }
            ("print" | "println", [_, ..]) => {
                let end = if name == "println" { " ~ \"\\n\"" } else { "" };
                let between = if name == "println" { " ~ \" \" ~ " } else { " ~ " };
                Ok(format!("({}{end})", values.join(between)))
            }
            ("printf", [format, rest @ ..]) => printf(format, rest, at()),
            _ => Err(TemplateError {
                message: format!("The function `{name}` has no equivalent here."),
                at: at(),
            }),
        }
    }
}

/// Translates `printf` into a concatenation. Supports the verbs with the same meaning in both: `%s`, `%v`,
/// `%d` and `%%`.
fn printf(format: &str, values: &[String], at: std::ops::Range<usize>) -> Result<String, TemplateError> {
    let Some(format) = format.strip_prefix('"').and_then(|format| format.strip_suffix('"')) else {
        return Err(TemplateError {
            message: "The format of `printf` must be a literal text.".to_owned(),
            at,
        });
    };
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut values = values.iter();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            literal.push(character);
            continue;
        }
        match characters.next() {
            Some('%') => literal.push('%'),
            Some('s' | 'v' | 'd') => {
                let Some(value) = values.next() else {
                    return Err(TemplateError { message: "`printf` has too few values.".to_owned(), at });
                };
                if !literal.is_empty() {
                    parts.push(format!("\"{}\"", std::mem::take(&mut literal)));
                }
                parts.push(value.clone());
            }
            _ => {
                let message = "`printf` supports only the verbs `%s`, `%v`, `%d` and `%%` here.";
                return Err(TemplateError { message: message.to_owned(), at });
            }
        }
    }
    if values.next().is_some() {
        return Err(TemplateError { message: "`printf` has too many values.".to_owned(), at });
    }
    if !literal.is_empty() || parts.is_empty() {
        parts.push(format!("\"{literal}\""));
    }
    Ok(format!("({})", parts.join(" ~ ")))
}

fn variable(name: &str, root: &str) -> String {
    // `$` alone is the dot of the top level, and `$.a` a field of it.
    match name.strip_prefix('.') {
        Some(path) if root.is_empty() => path.to_owned(),
        Some(path) => format!("{root}.{path}"),
        None => name.to_owned(),
    }
}

/// Returns the names before `:=`, and the tokens after it.
fn assigned(tokens: &[Token]) -> (Vec<String>, &[Token]) {
    let Some(at) = tokens.iter().position(|token| token.kind == Kind::Assign) else {
        return (Vec::new(), tokens);
    };
    let names = tokens[..at].iter().filter_map(|token| match &token.kind {
        Kind::Variable(name) => Some(name.clone()),
        _ => None,
    });
    (names.collect(), &tokens[at + 1..])
}

fn closing(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close if depth == 0 => return true,
            Kind::Close => depth -= 1,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_in_the_other_notation() {
        for (template, expected) in [
            ("plain", "plain"),
            (
                "{{.a.b}} and {{ .c }}",
                "{{ a.b|default(\"<no value>\") }} and {{ c|default(\"<no value>\") }}",
            ),
            (
                "{{if .a}}x{{else if eq .b \"1\"}}y{{else}}z{{end}}",
                "{% if a %}x{% elif (b == \"1\") %}y{% else %}z{% endif %}",
            ),
            ("{{- .a -}}", "{{- a|default(\"<no value>\") -}}"),
            ("{{if and .a (not .b)}}x{{end}}", "{% if (a and ((not b))) %}x{% endif %}"),
            (
                "{{range .list}}{{.}},{{.x}}{{else}}none{{end}}",
                "{% for dot1 in list %}{{ dot1 }},{{ dot1.x|default(\"<no value>\") }}{% else %}none{% endfor %}",
            ),
            (
                "{{range $k, $v := .map}}{{$k}}={{$v}}{{end}}",
                "{% for k, v in map|items %}{{ k }}={{ v }}{% endfor %}",
            ),
            (
                "{{with .a}}{{.b}}{{$.c}}{{end}}",
                "{% with dot1 = a %}{% if dot1 %}{{ dot1.b|default(\"<no value>\") }}{{ c }}{% endif %}{% endwith %}",
            ),
            ("{{$x := .a}}{{$x}}", "{% set x = a %}{{ x }}"),
            ("{{printf \"%s-%v\" .a .b}}", "{{ (a ~ \"-\" ~ b) }}"),
            ("{{.a | printf \"<%s>\"}}", "{{ (\"<\" ~ a ~ \">\") }}"),
            ("{{index .a 1}} {{len .a}}", "{{ a[1] }} {{ a|length }}"),
            ("{{/* a comment */}}x", "x"),
            ("{{eq .a 1 2}}", "{{ (a in [1, 2]) }}"),
            ("{{`raw \"text\"`}}", "{{ \"raw \\\"text\\\"\" }}"),
            ("a {% b", "{{ \"a {% b\" }}"),
        ] {
            assert_eq!(minijinja(template, "").as_deref(), Ok(expected), "{template}");
        }
        assert_eq!(minijinja("{{.x}}", "a.b").as_deref(), Ok("{{ a.b.x|default(\"<no value>\") }}"));
    }

    #[test]
    fn what_has_nothing_like_it_is_refused_at_its_place() {
        for (template, part) in [
            ("ab{{.}}", "."),
            ("{{call .f}}", "call"),
            ("{{define \"x\"}}", "define \"x\""),
            ("{{if .a}}", "if .a"),
            ("{{end}}", "end"),
            ("{{printf \"%q\" .a}}", "printf"),
            ("{{.a", "{{"),
            ("{{ .a ? }}", "?"),
            ("{{}}", ""),
        ] {
            let wrong = minijinja(template, "").unwrap_err();
            assert_eq!(&template[wrong.at.clone()], part, "{template}: {wrong:?}");
        }
    }
}
