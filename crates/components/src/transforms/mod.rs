//! The transforms, one file each.

pub mod add_id;
pub mod add_sequence;
pub mod cast;
pub mod check_size;
pub mod check_time;
pub mod check_type;
pub mod compress;
pub mod convert_image;
pub mod copy;
pub mod csv;
pub mod decode_base64;
pub mod decompress;
pub mod dedupe;
pub mod drop;
pub mod encode;
pub mod encode_base64;
pub mod exec;
pub mod extract;
pub mod filter;
pub mod flatten;
pub mod forget;
pub mod format_timestamp;
pub mod geoip;
pub mod hash;
pub mod keep;
pub mod limit;
pub mod lines;
pub mod pack;
pub mod parse_csv;
pub mod parse_grok;
pub mod parse_json;
pub mod parse_logfmt;
pub mod parse_regex;
pub mod parse_timestamp;
pub mod parse_user_agent;
pub mod remove;
pub mod rename;
pub mod rename_file;
pub mod replace;
pub mod route;
pub mod route_by;
pub mod runlength;
pub mod sample;
pub mod set;
pub mod slice;
pub mod split;
pub mod split_array;
pub mod split_fields;
pub mod split_pick;
pub mod strip_metadata;
pub mod template;
pub mod trim;
pub mod trim_to_bounds;
pub mod upload;
pub mod write;

use thalweg_record::PAYLOAD;

/// The default input of parsers.
fn payload() -> String {
    PAYLOAD.to_owned()
}

/// The default delimiter.
fn comma() -> String {
    ",".to_owned()
}

/// Returns the reason why a message that is not text is rejected.
pub(crate) fn not_utf8(value: &[u8]) -> String {
    let valid = std::str::from_utf8(value).err().map_or(value.len(), |error| error.valid_up_to());
    format!("is not UTF-8, at byte {valid}")
}

/// Helpers for tests of transforms.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringViewArray};
    use thalweg_record::Batch;

    use crate::shared::columns::FieldType;

    /// Returns a batch of these payloads with text fields.
    pub(crate) fn with_text(payloads: &[&str], columns: &[(&str, &[Option<&str>])]) -> Batch {
        let fields = columns.iter().map(|(name, values)| {
            (FieldType::Text.field(name), Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef)
        });
        thalweg_engine::testing::batch(payloads).set_fields(fields).unwrap()
    }

    /// Sends these lines through a transform. Each line must leave unchanged, on `main` or `errors`.
    pub(crate) fn no_line_is_lost<C: thalweg_engine::TransformConfig>(
        yaml: &str,
        lines: &[String],
    ) -> Result<(), proptest::test_runner::TestCaseError> {
        use thalweg_engine::{Output, testing};
        let given = testing::apply::<C>(yaml, [testing::batch(lines)]);
        let (mut found, mut expected) = (given.payloads(Output::Main), lines.to_vec());
        found.extend(given.payloads(Output::Errors));
        found.sort();
        expected.sort();
        proptest::prop_assert_eq!(found, expected);
        Ok(())
    }

    /// Prints the time per message for batches of these lines: the best of several rounds.
    pub(crate) fn measure<C: thalweg_engine::TransformConfig>(yaml: &str, lines: &[String]) {
        use thalweg_engine::{Outlets, testing};
        let mut transform = testing::options::<C>(yaml).build(&testing::context()).unwrap();
        let batch = testing::batch(lines);
        let mut out = Outlets::new("test".into());
        let mut best = f64::MAX;
        for _ in 0..200 {
            let batch = batch.share();
            let start = std::time::Instant::now();
            transform.apply(batch, &mut out).unwrap();
            let given = out.take();
            best = best.min(start.elapsed().as_secs_f64());
            assert!(given.iter().all(|(output, _)| *output == thalweg_engine::Output::Main));
        }
        let rows = lines.len() as f64;
        let bytes = batch.payload_bytes() as f64;
        println!("{}: {:.0} ns/row, {:.2} GB/s", C::NAME, best / rows * 1e9, bytes / best / 1e9);
    }
}
