//! The examples of the functions' descriptions.

use super::*;

/// Returns the value of an expression as JSON.
fn value(sql: &str) -> String {
    let evaluated = evaluator(sql).evaluate(&batch_of(&["a line"], Vec::new()));
    assert_eq!(evaluated.failed, [], "{sql}");
    let is_text = *evaluated.values.data_type() == DataType::Utf8View && evaluated.kind == Kind::Plain;
    let is_time = matches!(evaluated.values.data_type(), DataType::Timestamp(..));
    let text = arrow_cast::cast(&evaluated.values, &DataType::Utf8View).unwrap();
    match text.as_string_view().iter().next().flatten() {
        None => "null".to_owned(),
        Some(text) if is_text || is_time => serde_json::Value::from(text).to_string(),
        Some(text) => text.to_owned(),
    }
}

#[test]
fn examples_have_the_results_that_they_show() {
    let wrong: Vec<String> = crate::functions()
        .iter()
        .filter_map(|function| {
            let value = value(function.example);
            (value != function.result).then(|| format!("{} = {value}", function.example))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
