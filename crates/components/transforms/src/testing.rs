//! For testing transforms.

pub use thalweg_codec::testing::with_text;

/// Gives a transform these lines: each must leave as it came, on or by `errors`.
pub fn no_line_is_lost<C: thalweg_engine::TransformConfig>(
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

/// Prints how long a message takes, in batches of these lines: the best of some rounds.
pub fn measure<C: thalweg_engine::TransformConfig>(yaml: &str, lines: &[String]) {
    use thalweg_engine::{Outputs, testing};
    let mut transform = testing::options::<C>(yaml).build(&testing::context()).unwrap();
    let batch = testing::batch(lines);
    let mut out = Outputs::new("test".into());
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
