//! The functions that expressions can call.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use datafusion_expr::{ScalarUDF, TypeSignature};
use datafusion_expr_common::signature::Arity;

use crate::{ExpressionError, FunctionInfo, bounded::bounded, catalogue::CATALOGUE, clock, elsewhere, json};

/// DataFusion functions about its own tables, files and type system, which have no use here.
const NOT_HERE: [&str; 16] = [
    "arrow_cast",
    "arrow_field",
    "arrow_metadata",
    "arrow_try_cast",
    "cast_to_type",
    "file_row_index",
    "get_field",
    "input_file_name",
    "try_cast_to_type",
    "union_extract",
    "union_tag",
    "version",
    "with_metadata",
    "named_struct",
    "struct",
    // Its result is a list, which no field can hold.
    "regexp_match",
];

/// Aggregates that users of databases may try.
const AGGREGATES: [&str; 24] = [
    "approx_distinct",
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "count",
    "dense_rank",
    "first_value",
    "group_concat",
    "lag",
    "last_value",
    "lead",
    "max",
    "mean",
    "median",
    "min",
    "percentile_cont",
    "rank",
    "row_number",
    "stddev",
    "string_agg",
    "sum",
    "var",
    "variance",
];

/// Every function by each of its names, in lower case.
static FUNCTIONS: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let theirs = datafusion_functions::all_default_functions()
        .into_iter()
        .filter(|function| !NOT_HERE.contains(&function.name()))
        .map(bounded);
    let ours = clock::functions().into_iter().chain(json::functions()).map(Arc::new);
    let mut functions = HashMap::new();
    // Our functions come last, so they replace functions of the same name.
    for function in theirs.chain(ours) {
        for name in std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str)) {
            functions.insert(name.to_lowercase(), function.clone());
        }
    }
    functions
});

/// Returns the function of that name, in any capitalisation.
pub(crate) fn find(name: &str) -> Option<&'static Arc<ScalarUDF>> {
    FUNCTIONS.get(name).or_else(|| FUNCTIONS.get(&name.to_lowercase()))
}

pub(crate) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

pub(crate) fn names() -> Vec<String> {
    FUNCTIONS.keys().cloned().collect()
}

pub(crate) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name.to_lowercase().as_str())
}

/// Checks that a function exists and accepts `given` arguments.
pub(crate) fn check_call(name: &str, given: usize) -> Result<(), ExpressionError> {
    let Some(function) = find(name) else { return Err(unknown(name)) };
    let takes = arities(&function.signature().type_signature);
    if takes.is_empty() || takes.contains(&given) {
        return Ok(());
    }
    let counts = takes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    let noun = if takes == [1] { "argument" } else { "arguments" };
    let verb = if given == 1 { "is" } else { "are" };
    let error = ExpressionError::new(format!("`{name}` takes {counts} {noun}, and {given} {verb} given."));
    Err(match described(function.name()) {
        Some(described) => error.help(format!("It is written `{}`.", described.call)),
        None => error,
    })
}

fn unknown(name: &str) -> ExpressionError {
    if is_aggregate(name) {
        let error = ExpressionError::new(format!(
            "`{name}` is an aggregate, and an expression looks at one message at a time."
        ));
        return match name.to_lowercase().as_str() {
            "max" => error.help("The greatest of several values is `greatest(a, b)`."),
            "min" => error.help("The least of several values is `least(a, b)`."),
            _ => error.help("The transform `aggregate` has functions over several messages."),
        };
    }
    let error = ExpressionError::new(format!("There is no function `{name}`."));
    let lower = name.to_lowercase();
    if let Some((column, method)) = lower.rsplit_once('.') {
        let call = if is_known(method) { method } else { "function" };
        return error.help(format!("Write `{call}({column})`."));
    }
    if let Some(sentence) = elsewhere::function(&lower) {
        return error.help(sentence);
    }
    let near = FUNCTIONS
        .keys()
        .map(|known| (strsim::damerau_levenshtein(&lower, known), known))
        .filter(|(distance, known)| *distance <= (known.len().max(lower.len()) / 3).max(1))
        .min();
    match near {
        Some((_, known)) => error.help(format!("Did you mean `{known}`?")),
        None => error,
    }
}

/// Returns the numbers of arguments that a signature accepts; empty if it accepts any number or does not say.
fn arities(signature: &TypeSignature) -> Vec<usize> {
    let variants = match signature {
        TypeSignature::OneOf(variants) => variants.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut counts = Vec::new();
    for variant in variants {
        match variant {
            TypeSignature::OneOf(_) => counts.extend(arities(variant)),
            _ => match variant.arity() {
                Arity::Fixed(count) => counts.push(count),
                Arity::Variable => return Vec::new(),
            },
        }
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Returns the description of a function.
fn described(name: &str) -> Option<&'static FunctionInfo> {
    CATALOGUE.iter().find(|known| known.name == name)
}

/// Returns all functions that expressions can call, by group and name.
pub fn functions() -> &'static [FunctionInfo] {
    CATALOGUE
}

/// Returns the other names of a function.
pub fn aliases(function: &FunctionInfo) -> Vec<&'static str> {
    let mut aliases: Vec<&str> =
        find(function.name).map_or(&[][..], |known| known.aliases()).iter().map(String::as_str).collect();
    aliases.sort_unstable();
    aliases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, given: usize) -> String {
        check_call(name, given).unwrap_err().to_string()
    }

    #[test]
    fn a_misspelt_function_is_met_with_the_one_that_was_meant() {
        assert_eq!(message("uper", 1), "There is no function `uper`. Did you mean `upper`?");
        assert_eq!(
            message("regex_like", 2),
            "There is no function `regex_like`. Did you mean `regexp_like`?"
        );
        assert_eq!(message("len", 1), "There is no function `len`. Use `length`.");
        assert_eq!(
            message("IF", 3),
            "There is no function `IF`. Write `CASE WHEN condition THEN a ELSE b END`."
        );
        assert_eq!(message("frobnicate", 2), "There is no function `frobnicate`.");
    }

    #[test]
    fn names_of_aggregates_are_not_ours() {
        assert!(AGGREGATES.iter().all(|aggregate| !is_known(aggregate)));
    }

    #[test]
    fn names_of_functions_are_not_case_sensitive() {
        assert_eq!(check_call("UPPER", 1), Ok(()));
        assert_eq!(check_call("Json_Get", 2), Ok(()));
    }

    #[test]
    fn a_wrong_number_of_arguments_is_told_with_the_right_one() {
        assert_eq!(
            message("upper", 2),
            "`upper` takes 1 argument, and 2 are given. It is written `upper(text)`."
        );
        assert_eq!(message("now", 1), "`now` takes 0 arguments, and 1 is given. It is written `now()`.");
    }

    #[test]
    fn every_function_is_described_once() {
        let mut described: Vec<&str> = functions().iter().map(|function| function.name).collect();
        let in_order =
            functions().windows(2).all(|pair| (pair[0].group, pair[0].name) < (pair[1].group, pair[1].name));
        assert!(in_order, "{described:?}");
        described.sort_unstable();
        let mut known: Vec<&str> = FUNCTIONS.values().map(|function| function.name()).collect();
        known.sort_unstable();
        known.dedup();
        assert_eq!(described, known);
    }
}
