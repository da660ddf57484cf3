//! Splits a template into literal text and actions, and takes the bodies of `define` and `block` out of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::tokens::{Kind, Token, tokens};
use super::{TemplateError, end_of};

/// A piece of a template, as its place in it.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// The text between actions.
    Literal(Range<usize>),
    /// The text between braces.
    Action(Range<usize>),
}

/// The bodies of templates by their names, which are in quotes.
pub(super) type Defined = BTreeMap<String, Rc<[Piece]>>;

/// A `define` or `block` that is open.
struct Open {
    name: String,
    at: Range<usize>,
    body: Vec<Piece>,
    /// The number of blocks inside of it that are open.
    inner: usize,
}

/// Returns the pieces outside of definitions, and the definitions.
pub(super) fn split(template: &str) -> Result<(Vec<Piece>, Defined), TemplateError> {
    let mut splitter = Splitter { pieces: Vec::new(), open: Vec::new(), defined: Defined::new() };
    let mut at = 0;
    while let Some(start) = template[at..].find("{{").map(|found| at + found) {
        splitter.add(Piece::Literal(at..start));
        let Some(length) = end_of(&template[start + 2..]) else {
            let message = "A `{{` is never closed.".to_owned();
            return Err(TemplateError { message, at: start..start + 2 });
        };
        let inside = start + 2..start + 2 + length;
        splitter.action(template, inside.clone())?;
        at = inside.end + 2;
    }
    splitter.add(Piece::Literal(at..template.len()));
    match splitter.open.pop() {
        Some(open) => Err(TemplateError { message: "`define` has no `end`.".to_owned(), at: open.at }),
        None => Ok((splitter.pieces, splitter.defined)),
    }
}

struct Splitter {
    pieces: Vec<Piece>,
    open: Vec<Open>,
    defined: Defined,
}

impl Splitter {
    fn add(&mut self, piece: Piece) {
        match self.open.last_mut() {
            Some(open) => open.body.push(piece),
            None => self.pieces.push(piece),
        }
    }

    fn action(&mut self, template: &str, inside: Range<usize>) -> Result<(), TemplateError> {
        let text = template[inside.clone()].trim_start_matches("- ").trim();
        let word = text.split([' ', '\t', '\n', '(', '"', '`', '-']).next().unwrap_or_default();
        match word {
            "define" | "block" => {
                // A block is used where it is defined.
                if word == "block" {
                    self.add(Piece::Action(inside.clone()));
                }
                let name = match tokens(text, inside.start)?.get(1) {
                    Some(Token { kind: Kind::Literal(name), .. }) => name.clone(),
                    _ => {
                        let message = format!("`{word}` needs a name in quotes.");
                        return Err(TemplateError { message, at: inside });
                    }
                };
                self.open.push(Open { name, at: inside, body: Vec::new(), inner: 0 });
                return Ok(());
            }
            "if" | "with" | "range" => {
                if let Some(open) = self.open.last_mut() {
                    open.inner += 1;
                }
            }
            "end" => {
                if self.open.last().is_some_and(|open| open.inner == 0) {
                    if let Some(Open { name, body, .. }) = self.open.pop() {
                        self.defined.insert(name, body.into());
                    }
                    return Ok(());
                }
                if let Some(open) = self.open.last_mut() {
                    open.inner -= 1;
                }
            }
            _ => {}
        }
        self.add(Piece::Action(inside));
        Ok(())
    }
}
