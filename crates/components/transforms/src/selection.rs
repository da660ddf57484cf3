//! The transforms `keep` and `drop`: a selection of fields by name.

use thalweg_codec::names::{Projection, matches};
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_record::Batch;

/// Keeps or drops the fields whose names match one of the patterns: see [`matches`].
pub struct Selection {
    patterns: Vec<String>,
    keeps: bool,
    projection: Projection,
}

impl Selection {
    /// Keeps the matching fields.
    pub fn of(patterns: Vec<String>) -> Self {
        Self { patterns, keeps: true, projection: Projection::default() }
    }

    /// Drops the matching fields.
    pub fn without(patterns: Vec<String>) -> Self {
        Self { keeps: false, ..Self::of(patterns) }
    }
}

impl Transform for Selection {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { patterns, keeps, projection } = self;
        let is_listed = |name: &str| patterns.iter().any(|pattern| matches(pattern, name));
        out.send(projection.apply(batch, |schema| {
            let fields = schema.fields().iter().enumerate();
            fields
                .filter(|(_, field)| is_listed(field.name()) == *keeps)
                .map(|(index, field)| (index, field.clone()))
                .collect()
        })?);
        Ok(())
    }
}
