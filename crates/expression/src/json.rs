//! Lookups in JSON text: `json_get(column, 'path.to[0].x')` and its typed variants.
//!
//! A column of irregular or nested values stays JSON text. A lookup skips through the text to its value and
//! parses only that value. A value is NULL if it is absent, `null`, not valid JSON, or not of the requested
//! type. None of these is an error. Text that is nested deeper than 127 levels counts as not valid, as in
//! `parse_json`: the parser is recursive, and deeper text would overflow its stack.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, builder::StringViewBuilder,
    cast::AsArray,
};
use arrow_cast::cast;
use arrow_schema::DataType;
use datafusion_common::{Result, ScalarValue, utils::take_function_args};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use sonic_rs::{JsonValueTrait, LazyValue, PointerNode};

/// The function that returns a value as text: strings without quotes, other values as JSON.
pub(crate) const GET: &str = "json_get";
/// The function that returns a value as JSON.
pub(crate) const EXTRACT: &str = "json_extract";
/// The function that returns a whole number.
pub(crate) const GET_INT: &str = "json_get_int";
/// The function that returns a number.
pub(crate) const GET_FLOAT: &str = "json_get_float";
/// The function that returns a boolean.
pub(crate) const GET_BOOL: &str = "json_get_bool";

/// The maximum nesting depth of JSON that is looked up in.
const DEEPEST: usize = 127;

/// All lookup functions and their types.
const LOOKUPS: [(&str, Gives); 5] = [
    (GET, Gives::Text),
    (EXTRACT, Gives::Json),
    (GET_INT, Gives::Int),
    (GET_FLOAT, Gives::Float),
    (GET_BOOL, Gives::Bool),
];

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Returns a path as text, which [`parse_path`] reads back.
pub(crate) fn path_text(path: &[Step]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if !key.is_empty() && !key.contains(['.', '[', ']', '"']) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            // Writing to a string cannot fail.
            Step::Key(key) => drop(write!(text, "[\"{}\"]", key.replace('\\', "\\\\").replace('"', "\\\""))),
            Step::Index(index) => drop(write!(text, "[{index}]")),
        }
    }
    text
}

/// Parses `a.b[0]["any key"]`; returns `None` if the text is not a path.
fn parse_path(text: &str) -> Option<Vec<PointerNode>> {
    let mut path = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let mut key = String::new();
            let mut characters = quoted.char_indices();
            let end = loop {
                match characters.next()? {
                    (_, '\\') => key.push(characters.next()?.1),
                    (at, '"') => break at,
                    (_, other) => key.push(other),
                }
            };
            path.push(PointerNode::Key(key.into()));
            rest = quoted[end + 1..].strip_prefix(']')?;
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']')?;
            path.push(PointerNode::Index(index.trim().parse().ok()?));
            rest = after;
        } else {
            let key = if path.is_empty() { rest } else { rest.strip_prefix('.')? };
            let end = key.find(['.', '[']).unwrap_or(key.len());
            if end == 0 {
                return None;
            }
            path.push(PointerNode::Key(key[..end].to_owned().into()));
            rest = &key[end..];
        }
    }
    Some(path)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gives {
    Text,
    Json,
    Int,
    Float,
    Bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Lookup {
    name: &'static str,
    gives: Gives,
    signature: Signature,
}

/// Returns the functions of this file.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let text = DataType::Utf8View;
    let signature = Signature::one_of(
        vec![TypeSignature::Exact(vec![text.clone()]), TypeSignature::Exact(vec![text.clone(), text])],
        Volatility::Immutable,
    );
    LOOKUPS
        .into_iter()
        .map(|(name, gives)| ScalarUDF::from(Lookup { name, gives, signature: signature.clone() }))
        .collect()
}

/// True if `name` is a lookup function.
pub(crate) fn is_lookup(name: &str) -> bool {
    LOOKUPS.iter().any(|(lookup, _)| *lookup == name)
}

impl ScalarUDFImpl for Lookup {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.gives {
            Gives::Text | Gives::Json => DataType::Utf8View,
            Gives::Int => DataType::Int64,
            Gives::Float => DataType::Float64,
            Gives::Bool => DataType::Boolean,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let (json, path) = if args.args.len() == 1 {
            let [json] = take_function_args(self.name, args.args)?;
            (json, ColumnarValue::Scalar(ScalarValue::Utf8View(Some(String::new()))))
        } else {
            let [json, path] = take_function_args(self.name, args.args)?;
            (json, path)
        };
        let json = json.into_array(rows)?;
        let json = cast(&json, &DataType::Utf8View)?;
        let json = json.as_string_view();
        let paths = match path {
            ColumnarValue::Scalar(path) => Paths::Same(path.try_as_str().flatten().and_then(parse_path)),
            ColumnarValue::Array(paths) => {
                Paths::Each(cast(&paths, &DataType::Utf8View)?.as_string_view().clone())
            }
        };
        Ok(ColumnarValue::Array(self.gives.look_up(json, &paths)))
    }
}

enum Paths {
    Same(Option<Vec<PointerNode>>),
    Each(StringViewArray),
}

impl Paths {
    /// Returns the value at the path of `row` in `json`.
    fn find<'a>(&self, row: usize, json: &'a str) -> Option<LazyValue<'a>> {
        if is_deep(json) {
            return None;
        }
        let value = match self {
            Paths::Same(path) => sonic_rs::get(json, path.as_ref()?),
            Paths::Each(paths) => {
                sonic_rs::get(json, parse_path(paths.is_valid(row).then(|| paths.value(row))?)?)
            }
        };
        value.ok().filter(|value| !value.is_null())
    }
}

/// True if JSON text may be nested deeper than [`DEEPEST`]. For text that is not valid JSON, this is true of
/// the part up to the first mistake, where the parser stops.
fn is_deep(json: &str) -> bool {
    let opens = |byte: u8| (byte == b'{') | (byte == b'[');
    // Nearly no text has more brackets than that, and counting them is faster than following texts and
    // escapes.
    if json.bytes().map(|byte| usize::from(opens(byte))).sum::<usize>() <= DEEPEST {
        return false;
    }
    let (mut depth, mut is_text, mut is_escaped) = (0usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return true;
        }
    }
    false
}

impl Gives {
    fn look_up(self, json: &StringViewArray, paths: &Paths) -> ArrayRef {
        let values = json.iter().enumerate().map(|(row, text)| text.and_then(|text| paths.find(row, text)));
        match self {
            Gives::Text | Gives::Json => {
                let mut texts = StringViewBuilder::with_capacity(json.len());
                for value in values {
                    match value {
                        Some(value) if self == Gives::Text => match value.as_str() {
                            Some(text) => texts.append_value(text),
                            None => texts.append_value(value.as_raw_str()),
                        },
                        Some(value) => texts.append_value(value.as_raw_str()),
                        None => texts.append_null(),
                    }
                }
                Arc::new(texts.finish())
            }
            Gives::Int => Arc::new(values.map(|value| int(&value?)).collect::<Int64Array>()),
            Gives::Float => Arc::new(values.map(|value| float(&value?)).collect::<Float64Array>()),
            Gives::Bool => Arc::new(values.map(|value| boolean(&value?)).collect::<BooleanArray>()),
        }
    }
}

fn int(value: &LazyValue) -> Option<i64> {
    let whole = |number: f64| {
        // The bounds are the nearest floats; the upper bound is already too large.
        (number.fract() == 0.0 && (i64::MIN as f64..i64::MAX as f64).contains(&number))
            .then_some(number as i64)
    };
    match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => value.as_i64().or_else(|| value.as_f64().and_then(whole)),
    }
}

fn float(value: &LazyValue) -> Option<f64> {
    match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None => value.as_f64(),
    }
}

fn boolean(value: &LazyValue) -> Option<bool> {
    match value.as_str() {
        Some(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Some(text) if text.eq_ignore_ascii_case("false") => Some(false),
        Some(_) => None,
        None => value.as_bool(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(gives: Gives, json: &str, path: &str) -> ArrayRef {
        gives.look_up(&StringViewArray::from(vec![json]), &Paths::Same(parse_path(path)))
    }

    fn text(json: &str, path: &str) -> Option<String> {
        get(Gives::Text, json, path).as_string_view().iter().next().flatten().map(str::to_owned)
    }

    #[test]
    fn a_path_leads_through_objects_and_arrays() {
        let json = r#"{"a": {"b": [10, {"c.d": "x\ny"}]}, "n": null}"#;
        assert_eq!(text(json, "a.b[0]").as_deref(), Some("10"));
        assert_eq!(text(json, r#"a.b[1]["c.d"]"#).as_deref(), Some("x\ny"));
        assert_eq!(text(json, "a.b[1]").as_deref(), Some(r#"{"c.d": "x\ny"}"#));
        assert_eq!(text(json, "n"), None);
        assert_eq!(text(json, "a.x"), None);
        assert_eq!(text(json, "a..b"), None);
        assert_eq!(text("not json", ""), None);
        assert_eq!(text(r#""quoted""#, "").as_deref(), Some("quoted"));
    }

    #[test]
    fn numbers_and_truth_values_are_read_also_from_quoted_text() {
        let ints =
            |json| get(Gives::Int, json, "").as_primitive::<arrow_array::types::Int64Type>().iter().next();
        assert_eq!(ints("42"), Some(Some(42)));
        assert_eq!(ints("42.0"), Some(Some(42)));
        assert_eq!(ints("42.5"), Some(None));
        assert_eq!(ints(r#""42""#), Some(Some(42)));
        assert_eq!(ints("1e300"), Some(None));
        assert_eq!(ints("[1]"), Some(None));
        assert_eq!(float(&sonic_rs::get("\"1.5\"", &[] as &[&str]).unwrap()), Some(1.5));
        let bools = |json| get(Gives::Bool, json, "").as_boolean().iter().next();
        assert_eq!(bools("true"), Some(Some(true)));
        assert_eq!(bools("\"False\""), Some(Some(false)));
        assert_eq!(bools("1"), Some(None));
    }

    #[test]
    fn brackets_in_texts_and_beside_each_other_are_not_depth() {
        let many = "[],{},".repeat(1000);
        let json = format!(r#"{{"t": "{}\"{}", "l": [{many}1], "x": 5}}"#, "[".repeat(500), "{".repeat(500));
        assert_eq!(text(&json, "x").as_deref(), Some("5"));
        let nested = |depth: usize| format!("{}7{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(text(&nested(DEEPEST), &"[0]".repeat(DEEPEST)).as_deref(), Some("7"));
        assert_eq!(text(&nested(DEEPEST + 1), "[0]"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_depth_overflows_the_stack(
            depth in prop_oneof![0..300usize, 0..200_000usize],
            close in 0..=3usize,
            object in any::<bool>(),
        ) {
            let (open, end) = if object { ("{\"a\":", "}") } else { ("[", "]") };
            let json = format!("{}1{}", open.repeat(depth), end.repeat(depth * close / 3));
            let beside = format!("{{\"z\":{json},\"b\":2}}");
            for (_, gives) in LOOKUPS {
                for path in ["", "b", "a.a", "[0][0]"] {
                    get(gives, &json, path);
                    let values = get(gives, &beside, path);
                    if path == "b" && depth > DEEPEST {
                        prop_assert!(values.is_null(0));
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_path_is_read_back_as_it_was(
            path in prop::collection::vec(
                prop_oneof!["\\PC{0,6}".prop_map(Step::Key), (0..100usize).prop_map(Step::Index)], 0..6),
        ) {
            let nodes = parse_path(&path_text(&path)).unwrap();
            prop_assert_eq!(nodes.len(), path.len());
            for (node, step) in nodes.iter().zip(&path) {
                match (node, step) {
                    (PointerNode::Key(key), Step::Key(expected)) => prop_assert_eq!(key.as_str(), expected),
                    (PointerNode::Index(index), Step::Index(expected)) => prop_assert_eq!(index, expected),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }

        #[test]
        fn no_text_and_no_path_breaks_a_lookup(json in "[\\[\\]{}\":,0-9a-z\\\\ ]{0,20}", path in "[a\\[\\]\"0.\\\\]{0,8}") {
            for (_, gives) in LOOKUPS {
                get(gives, &json, &path);
            }
        }
    }
}
