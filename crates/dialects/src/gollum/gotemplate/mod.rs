//! Translates Go's text templates into minijinja's notation.
//!
//! Both print values between double braces and have conditions and loops. Go's dot becomes a variable. At the
//! top level it is the message itself, whose fields are plain names; inside `with` and `range` it is `dot1`,
//! `dot2` and so on. A construct without equivalent is rejected at its position.

mod defines;
mod functions;
mod tokens;

use defines::{Defined, Piece};
use functions::function;
use tokens::{Kind, Token, quote, tokens};

/// A mistake, with its position in the template.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateError {
    pub(super) message: String,
    pub(super) at: std::ops::Range<usize>,
}

/// The name of the whole message in the transform `template`.
const WHOLE: &str = "whole_message";

/// The number of templates that may be nested in each other.
const DEEPEST: usize = 16;

/// Translates a template. `root` is the meaning of the dot at the top level: the name of a field, or empty
/// for the message.
pub(super) fn minijinja(template: &str, root: &str) -> Result<String, TemplateError> {
    let (pieces, defined) = defines::split(template)?;
    let mut translator = Translator {
        out: String::new(),
        blocks: Vec::new(),
        dots: vec![root.to_owned()],
        made: 0,
        defined,
        depth: 0,
    };
    translator.pieces(template, &pieces)?;
    Ok(translator.out)
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
    /// The bodies of `define` and `block`.
    defined: Defined,
    /// The number of templates around this place.
    depth: usize,
}

impl Translator {
    fn pieces(&mut self, template: &str, pieces: &[Piece]) -> Result<(), TemplateError> {
        let outer = std::mem::take(&mut self.blocks);
        for piece in pieces {
            match piece {
                Piece::Literal(text) => self.literal(&template[text.clone()]),
                Piece::Action(inside) => self.action(template, inside.clone())?,
            }
        }
        match std::mem::replace(&mut self.blocks, outer).pop() {
            Some(block) => {
                Err(TemplateError { message: format!("`{}` has no `end`.", block.word), at: block.at })
            }
            None => Ok(()),
        }
    }

    /// Puts the body of a defined template in place.
    fn template(
        &mut self,
        template: &str,
        rest: &[Token],
        whole: &std::ops::Range<usize>,
    ) -> Result<(), TemplateError> {
        let wrong = |message: String| TemplateError { message, at: whole.clone() };
        let Some((Token { kind: Kind::Literal(name), .. }, value)) = rest.split_first() else {
            return Err(wrong("`template` needs a name in quotes.".to_owned()));
        };
        let Some(body) = self.defined.get(name).cloned() else {
            return Err(wrong(format!("There is no `define {name}`.")));
        };
        if self.depth == DEEPEST {
            return Err(wrong(format!("`template {name}` contains itself, which has no equivalent here.")));
        }
        let value = if value.is_empty() { "none".to_owned() } else { self.pipeline(value, whole)? };
        let dot = self.new_dot();
        self.out.push_str(&format!("{{% with {dot} = {value} %}}"));
        let outer = std::mem::replace(&mut self.dots, vec![dot]);
        self.depth += 1;
        self.pieces(template, &body)?;
        self.depth -= 1;
        self.dots = outer;
        self.out.push_str("{% endwith %}");
        Ok(())
    }

    /// Writes the text between actions. Text that minijinja would interpret is wrapped in an expression.
    fn literal(&mut self, text: &str) {
        if text.contains("{%") || text.contains("{#") {
            let quoted = quote(text);
            self.out.push_str(&format!("{{{{ {quoted} }}}}"));
        } else {
            self.out.push_str(text);
        }
    }

    fn action(&mut self, template: &str, inside: std::ops::Range<usize>) -> Result<(), TemplateError> {
        let at = inside.start;
        let inside = &template[inside];
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
            "template" | "block" => self.template(template, rest, &whole)?,
            "break" | "continue" => self.out.push_str(&opened(word.to_owned())),
            _ => {
                let (names, rest) = assigned(&tokens);
                let mut value = self.pipeline(rest, &whole)?;
                if names.is_empty() {
                    value.push_str("|go_text");
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
                Kind::Field(path) => self.field(path),
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

    fn field(&self, path: &str) -> String {
        let dot = self.dots.last().map_or("", String::as_str);
        match (dot, path) {
            ("", "") => WHOLE.to_owned(),
            ("", path) => own_name(path),
            (dot, "") => dot.to_owned(),
            (dot, path) => format!("{dot}.{path}"),
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
        function(name, arguments.get(1..).unwrap_or_default())
            .map_err(|message| TemplateError { message, at: at() })
    }
}

fn variable(name: &str, root: &str) -> String {
    // `$` alone is the dot of the top level, and `$.a` a field of it.
    match name.strip_prefix('.') {
        Some(path) if root.is_empty() => own_name(path),
        Some(path) => format!("{root}.{path}"),
        None if !name.is_empty() => name.to_owned(),
        None if root.is_empty() => WHOLE.to_owned(),
        None => root.to_owned(),
    }
}

/// Returns a field of the message, under the name that it has here.
fn own_name(path: &str) -> String {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let first = super::modulators::own_name(first);
    rest.map_or_else(|| first.to_string(), |rest| format!("{first}.{rest}"))
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
            ("{{.a.b}} and {{ .c }}", "{{ a.b|go_text }} and {{ c|go_text }}"),
            (
                "{{if .a}}x{{else if eq .b \"1\"}}y{{else}}z{{end}}",
                "{% if a %}x{% elif (b == \"1\") %}y{% else %}z{% endif %}",
            ),
            ("{{- .a -}}", "{{- a|go_text -}}"),
            ("{{if and .a (not .b)}}x{{end}}", "{% if (a and ((not b))) %}x{% endif %}"),
            (
                "{{range .list}}{{.}},{{.x}}{{else}}none{{end}}",
                "{% for dot1 in list %}{{ dot1|go_text }},{{ dot1.x|go_text }}{% else %}none{% endfor %}",
            ),
            (
                "{{range $k, $v := .map}}{{$k}}={{$v}}{{end}}",
                "{% for k, v in map|items %}{{ k|go_text }}={{ v|go_text }}{% endfor %}",
            ),
            (
                "{{with .a}}{{.b}}{{$.c}}{{end}}",
                "{% with dot1 = a %}{% if dot1 %}{{ dot1.b|go_text }}{{ c|go_text }}{% endif %}{% endwith %}",
            ),
            ("{{$x := .a}}{{$x}}", "{% set x = a %}{{ x|go_text }}"),
            ("{{printf \"%s-%v\" .a .b}}", "{{ (\"%s-%v\"|go_printf(a, b))|go_text }}"),
            ("{{.a | printf \"<%s>\"}}", "{{ (\"<%s>\"|go_printf(a))|go_text }}"),
            ("{{js .a}} {{print .a 1}}", "{{ (a|go_js)|go_text }} {{ (a|go_print(1))|go_text }}"),
            ("{{index .a 1}} {{len .a}}", "{{ a[1]|go_text }} {{ a|length|go_text }}"),
            ("{{/* a comment */}}x", "x"),
            ("{{eq .a 1 2}}", "{{ (a in [1, 2])|go_text }}"),
            ("{{`raw \"text\"`}}", "{{ \"raw \\\"text\\\"\"|go_text }}"),
            ("a {% b", "{{ \"a {% b\" }}"),
            ("ab{{.}} {{$}}", "ab{{ whole_message|go_text }} {{ whole_message|go_text }}"),
            (
                "{{define \"x\"}}<{{.}}{{if .b}}!{{end}}>{{end}}{{template \"x\" .a}}",
                "{% with dot1 = a %}<{{ dot1|go_text }}{% if dot1.b %}!{% endif %}>{% endwith %}",
            ),
            ("{{block \"x\" .a}}{{.}}{{end}}", "{% with dot1 = a %}{{ dot1|go_text }}{% endwith %}"),
            (
                "{{range .l}}{{if .}}{{continue}}{{end}}{{break}}{{end}}",
                "{% for dot1 in l %}{% if dot1 %}{% continue %}{% endif %}{% break %}{% endfor %}",
            ),
            ("{{.payload}}", "{{ payload_|go_text }}"),
        ] {
            assert_eq!(minijinja(template, "").as_deref(), Ok(expected), "{template}");
        }
        assert_eq!(minijinja("{{.x}}", "a.b").as_deref(), Ok("{{ a.b.x|go_text }}"));
    }

    #[test]
    fn what_has_nothing_like_it_is_refused_at_its_place() {
        for (template, part) in [
            ("{{shout .f}}", "shout"),
            ("{{define \"x\"}}", "define \"x\""),
            ("{{template \"x\"}}", "template \"x\""),
            ("{{define \"x\"}}{{template \"x\"}}{{end}}{{template \"x\"}}", "template \"x\""),
            ("{{if .a}}", "if .a"),
            ("{{end}}", "end"),
            ("{{.a", "{{"),
            ("{{ .a ? }}", "?"),
            ("{{}}", ""),
        ] {
            let wrong = minijinja(template, "").unwrap_err();
            assert_eq!(&template[wrong.at.clone()], part, "{template}: {wrong:?}");
        }
    }
}
