//! JSON objects whose members are templates.

use thalweg_codec::json::write_text;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_record::Batch;

/// The members of a JSON object, each with a text.
pub(crate) struct Members<'a> {
    members: Vec<(&'a str, BoundTemplate<'a>)>,
    text: Vec<u8>,
}

impl<'a> Members<'a> {
    /// Binds the templates of the members to a batch.
    pub(crate) fn of(members: &'a mut [(String, Template)], batch: &Batch) -> Self {
        let members = members.iter_mut().map(|(name, value)| (name.as_str(), value.bind(batch)));
        Self { members: members.collect(), text: Vec::new() }
    }

    /// Appends the object without members that are empty. Returns false if it has none.
    pub(crate) fn write(&mut self, row: usize, out: &mut Vec<u8>) -> bool {
        let mut has_members = false;
        out.push(b'{');
        for (name, value) in &mut self.members {
            self.text.clear();
            value.render(row, &mut self.text);
            if self.text.is_empty() {
                continue;
            }
            if has_members {
                out.push(b',');
            }
            has_members = true;
            write_text(name, out);
            out.push(b':');
            write_text(&String::from_utf8_lossy(&self.text), out);
        }
        out.push(b'}');
        has_members
    }
}
