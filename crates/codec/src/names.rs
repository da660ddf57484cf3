//! Chooses columns by name, and caches the choice per schema.
//!
//! The columns that stay, and their names, depend on the schema alone. Batches of one schema usually follow
//! one another. So the choice is made once, and all these batches share one `Arc` of the new schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, FieldRef, Schema, SchemaRef};
use thalweg_record::Batch;
pub use thalweg_record::name_matches as matches;

/// True if a pattern matches a name, or the part of the name before one of its dots: `a` covers `a` and
/// `a.b`.
pub fn covers(pattern: &str, name: &str) -> bool {
    matches(pattern, name) || name.match_indices('.').any(|(at, _)| matches(pattern, &name[..at]))
}

/// Returns the prefix of the names that a group pattern matches: `a.` for `a.*`. `None` for other patterns.
pub fn group(pattern: &str) -> Option<&str> {
    pattern.strip_suffix('*').filter(|prefix| prefix.ends_with('.') && !prefix.contains('*'))
}

/// True if two schemas are equal. Fast if they are the same object.
pub fn same(one: &SchemaRef, other: &SchemaRef) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// Returns the fields of a schema that stay, with their new names, and their indexes in the schema. A renamed
/// field replaces a field that has its new name. If two fields get the same name, the last one stays.
pub fn renamed_fields(
    schema: &Schema,
    stays: impl Fn(&str) -> bool,
    new_name: impl Fn(&str) -> Option<String>,
) -> Vec<(usize, FieldRef)> {
    let fields = schema.fields().iter().enumerate().filter(|(_, field)| stays(field.name()));
    let fields: Vec<_> = fields.map(|(index, field)| (index, field, new_name(field.name()))).collect();
    let mut taken: HashMap<&str, usize> = HashMap::new();
    taken.extend(fields.iter().filter_map(|(index, _, new)| Some((new.as_deref()?, *index))));
    let renamed = fields.iter().filter_map(|(index, field, new)| {
        let name = new.as_deref().unwrap_or(field.name());
        match taken.get(name) {
            Some(owner) if owner != index => None,
            _ if new.is_none() => Some((*index, (*field).clone())),
            _ => Some((*index, Arc::new(field.as_ref().clone().with_name(name)))),
        }
    });
    renamed.collect()
}

/// A choice of columns, cached for one schema.
#[derive(Debug, Default)]
pub struct Projection {
    last: Option<Chosen>,
}

#[derive(Debug)]
struct Chosen {
    from: SchemaRef,
    to: SchemaRef,
    columns: Vec<usize>,
}

impl Projection {
    /// Reduces a batch to the columns that `choose` returns: the index of each in the old schema, and its new
    /// field. `choose` is called only when the schema changes.
    pub fn apply(
        &mut self,
        batch: Batch,
        choose: impl FnOnce(&Schema) -> Vec<(usize, FieldRef)>,
    ) -> Result<Batch, ArrowError> {
        let from = batch.fields().schema();
        let chosen = match self.last.take() {
            Some(last) if same(&last.from, &from) => last,
            _ => {
                let (columns, fields): (Vec<usize>, Vec<FieldRef>) = choose(&from).into_iter().unzip();
                let to = Arc::new(Schema::new(fields));
                // An unchanged schema stays the same object, for the components downstream.
                let to = if *to == *from { from.clone() } else { to };
                Chosen { from, to, columns }
            }
        };
        let columns: Vec<ArrayRef> =
            chosen.columns.iter().filter_map(|&index| batch.fields().columns().get(index).cloned()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.rows()));
        let fields = RecordBatch::try_new_with_options(chosen.to.clone(), columns, &options)?;
        self.last = Some(chosen);
        batch.with_fields(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::{covers, matches};

    #[test]
    fn a_star_stands_for_any_characters_and_all_else_for_itself() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("*", "x"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("a*b*c", "axbxbc"),
            ("*.*", "a.b"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("a*a", "a"), ("*b", "abc"), ("a*b*c", "acb"), ("a?", "ab")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_covers_the_fields_below_the_names_that_it_matches() {
        assert!(covers("a", "a") && covers("a", "a.b.c") && covers("a.b", "a.b.c") && covers("x*", "xy.z"));
        assert!(!covers("a", "ab") && !covers("a.b", "a") && !covers("b", "a.b"));
    }
}
