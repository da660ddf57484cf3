//! Helpers for tests of transforms.

pub use thalweg_codec::testing::with_text;

/// Passes these lines to a transform, and checks that each leaves unchanged, by the main output or by
/// `errors`.
pub fn no_line_is_lost<C: thalweg_engine::Component + thalweg_engine::TransformConfig>(
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

/// Returns the messages of the main output as JSON, as a sink writes them.
pub fn written(given: thalweg_engine::testing::Given) -> Vec<serde_json::Value> {
    use thalweg_engine::{Output, testing};
    let main = given.outputs.into_iter().filter(|(output, _)| *output == Output::Main);
    let encoded =
        testing::apply::<thalweg_stream::encode::EncodeConfig>("json", main.flat_map(|(_, batches)| batches));
    let lines = encoded.payloads(Output::Main);
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
