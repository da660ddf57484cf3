//! Writes columns as nested objects.

use arrow_array::BinaryViewArray;
use thalweg_record::PayloadWriter;

use super::flat::json_key;
use crate::block::Block;
use crate::values::Values;

/// The maximum depth of nested objects. Deeper names keep their dots.
const DEEPEST: usize = 64;

/// The members of an object.
#[derive(Default)]
pub(super) struct Members(Vec<Member>);

struct Member {
    name: String,
    key: Block,
    /// The number of the column that holds the member's value.
    column: Option<usize>,
    /// The full name of the column, for messages in which another value takes the place of its parent object.
    flat: Block,
    members: Members,
}

/// Splits a name at its dots, into at most `depth` parts. The dot of `\.` is a part of a name.
fn split(name: &str, depth: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('.') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        match before.strip_suffix('\\') {
            Some(before) => part = part + before + ".",
            None if parts.len() + 1 < depth => parts.push(std::mem::take(&mut part) + before),
            None => part = part + before + ".",
        }
        rest = after;
    }
    parts.push(part + rest);
    parts
}

impl Members {
    /// Creates the members for these columns. If `is_nested`, names are split at their dots.
    pub(super) fn new(columns: &[String], is_nested: bool) -> Self {
        let mut all = Self::default();
        let depth = if is_nested { DEEPEST } else { 1 };
        for (number, name) in columns.iter().enumerate() {
            let mut members = &mut all;
            let mut parts = split(name, depth).into_iter().peekable();
            while let Some(part) = parts.next() {
                let member = members.member(&part);
                if parts.peek().is_none() {
                    member.column = Some(number);
                    member.flat = key(name);
                }
                members = &mut member.members;
            }
        }
        all
    }

    fn member(&mut self, name: &str) -> &mut Member {
        let at = self.0.iter().position(|member| member.name == name).unwrap_or_else(|| {
            let empty = Block::new(Vec::new());
            let (key, members) = (key(name), Self::default());
            self.0.push(Member { name: name.to_owned(), key, column: None, flat: empty, members });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Writes the messages. If `root` has a value, that value is written instead of the members.
    pub(super) fn write(
        &self,
        root: &Values,
        columns: &[Values],
        rows: usize,
        keep_nulls: bool,
        mut written: PayloadWriter,
    ) -> BinaryViewArray {
        for row in 0..rows {
            let out = written.buffer();
            if root.is_null(row) {
                let start = out.len();
                self.write_row(columns, row, keep_nulls, out);
                close(out, start);
            } else {
                root.write_json(row, out);
            }
            written.end();
        }
        written.finish()
    }

    /// Writes the members, each with a comma before it.
    fn write_row(&self, columns: &[Values], row: usize, keep_nulls: bool, out: &mut Vec<u8>) {
        for member in &self.0 {
            let value = member.column.and_then(|column| columns.get(column));
            let has_members = !member.members.0.is_empty();
            match value.filter(|value| !value.is_null(row)) {
                Some(value) => {
                    member.key.write(out);
                    value.write_json(row, out);
                    member.members.write_flat(columns, row, out);
                }
                None if has_members => {
                    let before = out.len();
                    member.key.write(out);
                    let start = out.len();
                    member.members.write_row(columns, row, keep_nulls, out);
                    if out.len() > start {
                        close(out, start);
                    } else {
                        out.truncate(before);
                    }
                }
                None if keep_nulls => {
                    member.key.write(out);
                    out.extend_from_slice(b"null");
                }
                None => {}
            }
        }
    }

    /// Writes the members with their full names, because a value takes the place of their parent object.
    fn write_flat(&self, columns: &[Values], row: usize, out: &mut Vec<u8>) {
        for member in &self.0 {
            let value = member.column.and_then(|column| columns.get(column));
            if let Some(value) = value.filter(|value| !value.is_null(row)) {
                member.flat.write(out);
                value.write_json(row, out);
            }
            member.members.write_flat(columns, row, out);
        }
    }
}

fn key(name: &str) -> Block {
    let mut text = Vec::new();
    json_key(name, &mut text);
    Block::new(text)
}

/// Puts braces around the members written since `start`. The first starts with a comma, where the brace
/// belongs.
fn close(out: &mut Vec<u8>, start: usize) {
    match out.get_mut(start) {
        Some(first) => *first = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn names_are_split_at_dots_that_are_not_escaped() {
        assert_eq!(split("a.b.c", 64), ["a", "b", "c"]);
        assert_eq!(split(r"a\.b.c\.", 64), ["a.b", "c."]);
        assert_eq!(split("a.b.c", 2), ["a", "b.c"]);
        assert_eq!(split("a.b", 1), ["a.b"]);
    }
}
