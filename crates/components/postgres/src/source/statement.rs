//! Tells a query from other statements, by as much of SQL's grammar as this takes: words, texts and comments.
//!
//! The source reads a query as a part of its own, `SELECT … FROM (QUERY)`. Anything else is an error of the
//! server at the start of each run, in words about that part. (Rejected: a parser of SQL. PostgreSQL has more
//! grammar than any of them knows, and a right query must never be refused.)

/// Why a text is no query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoQuery {
    /// It has nothing but comments.
    Empty,
    /// It begins with another word, or with none.
    Other,
    /// It has several statements.
    Several,
}

/// Returns a query without the `;` behind it.
///
/// # Errors
/// If it is none.
pub(super) fn query(text: &str) -> Result<&str, NoQuery> {
    let mut tokens = Tokens { rest: text };
    let mut has_begun = false;
    loop {
        tokens.skip_blanks();
        let end = text.len() - tokens.rest.len();
        match tokens.token() {
            None if has_begun => return Ok(text.get(..end).unwrap_or(text).trim_end()),
            None => return Err(NoQuery::Empty),
            Some(Token::Semicolon) if !has_begun => return Err(NoQuery::Empty),
            Some(Token::Semicolon) => {
                while let Some(token) = tokens.token() {
                    if !matches!(token, Token::Semicolon) {
                        return Err(NoQuery::Several);
                    }
                }
                return Ok(text.get(..end).unwrap_or(text));
            }
            // `(SELECT …) UNION (SELECT …)`
            Some(Token::Opening) if !has_begun => {}
            Some(Token::Word(word)) if !has_begun => {
                let known = ["select", "with", "values", "table"];
                if !known.iter().any(|known| word.eq_ignore_ascii_case(known)) {
                    return Err(NoQuery::Other);
                }
                has_begun = true;
            }
            Some(_) if !has_begun => return Err(NoQuery::Other),
            Some(_) => {}
        }
    }
}

enum Token<'q> {
    Word(&'q str),
    Semicolon,
    Opening,
    /// A text, or any other character.
    Other,
}

struct Tokens<'q> {
    rest: &'q str,
}

impl<'q> Tokens<'q> {
    /// Skips white space and comments.
    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with("--") {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.skip(comment(self.rest));
            } else {
                return;
            }
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Returns the next token. A text that does not end takes all that follows.
    fn token(&mut self) -> Option<Token<'q>> {
        self.skip_blanks();
        let first = self.rest.chars().next()?;
        if first.is_alphabetic() || first == '_' {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
            let end = self.rest.find(|letter: char| !is_part(letter)).unwrap_or(self.rest.len());
            let word = self.rest.get(..end).unwrap_or_default();
            self.skip(end);
            if word.eq_ignore_ascii_case("e") && self.rest.starts_with('\'') {
                self.skip(escaped(self.rest));
            }
            return Some(Token::Word(word));
        }
        let (token, length) = match first {
            ';' => (Token::Semicolon, 1),
            '(' => (Token::Opening, 1),
            // Two quotes in a text end it and begin the next one.
            '\'' | '"' => (Token::Other, after(self.rest, 1, &first.to_string())),
            '$' => (Token::Other, dollars(self.rest)),
            other => (Token::Other, other.len_utf8()),
        };
        self.skip(length);
        Some(token)
    }
}

/// Returns the place behind the next `end`, from `start` on.
fn after(text: &str, start: usize, end: &str) -> usize {
    let found = text.get(start..).and_then(|rest| rest.find(end));
    found.map_or(text.len(), |at| start + at + end.len())
}

/// Returns the length of a comment, which may have others in it.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => {
                (depth, at) = (depth.saturating_sub(1), at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the length of a text with escapes by `\`: `'it\'s'`.
fn escaped(text: &str) -> usize {
    let mut is_escape = false;
    let end = text.char_indices().skip(1).find(|(_, letter)| {
        let is_end = *letter == '\'' && !is_escape;
        is_escape = *letter == '\\' && !is_escape;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Returns the length of a text between dollars, `$$it's$$` or `$a$it's$a$`, or of a dollar alone.
fn dollars(text: &str) -> usize {
    let tag = text.get(1..).and_then(|rest| rest.split_once('$')).map(|(tag, _)| tag);
    let is_tag = |tag: &&str| {
        !tag.starts_with(|letter: char| letter.is_ascii_digit())
            && tag.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    match tag.filter(is_tag) {
        Some(tag) => after(text, tag.len() + 2, &format!("${tag}$")),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn queries_are_told_from_other_statements() {
        for (text, expected) in [
            ("SELECT 1", Ok("SELECT 1")),
            (" select 1 ;\n; ", Ok(" select 1 ")),
            ("SELECT 1; -- the end; of it", Ok("SELECT 1")),
            ("", Err(NoQuery::Empty)),
            (" ; ", Err(NoQuery::Empty)),
            ("/* nothing", Err(NoQuery::Empty)),
            ("SELECT 1; DELETE FROM a", Err(NoQuery::Several)),
            ("SELECT 1;;SELECT 2", Err(NoQuery::Several)),
            ("delete from a", Err(NoQuery::Other)),
            ("selects 1", Err(NoQuery::Other)),
            ("1", Err(NoQuery::Other)),
        ] {
            assert_eq!(query(text), expected, "{text}");
        }
        for whole in [
            "-- all\n/* /* of */ */ WITH a AS (SELECT 1) TABLE a",
            "((SELECT 1) UNION (VALUES (2)))",
            "SELECT 1 -- the end; of it",
            "SELECT ';', \"a;b\", 'it''s;', E'it\\';', $$;$$, $a$;$$;$a$, $1",
        ] {
            assert_eq!(query(whole), Ok(whole));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_query_or_not(text in "\\PC*") {
            let _ = query(&text);
            let _ = query(&format!("SELECT {text}"));
        }

        #[test]
        fn a_text_in_quotes_ends_no_statement(text in "\\PC*") {
            let quoted = format!("SELECT '{}', \"{}\", 1", text.replace('\'', "''"), text.replace('"', "\"\""));
            prop_assert_eq!(query(&quoted), Ok(quoted.as_str()));
        }
    }
}
