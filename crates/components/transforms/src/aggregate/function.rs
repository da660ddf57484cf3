//! The functions of `aggregate`, as texts: `count(*)`, `sum(bytes / 1024)`, `quantile(ms, 0.95)`.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, nearest, register_format};
use thalweg_expression::{Expression, ExpressionError};

use super::{list, top};

const FORMAT: &str = "aggregate-function";

const NAMES: [&str; 15] = [
    "count", "count_if", "sum", "mean", "min", "max", "distinct", "quantile", "first", "last", "any",
    "variance", "stddev", "list", "top_k",
];

/// A computation over values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// The number of messages, or of values that are not NULL.
    Count,
    /// The number of messages for which a condition is true.
    CountIf,
    /// The sum of numbers.
    Sum,
    /// The mean of numbers.
    Mean,
    /// The least value.
    Min,
    /// The greatest value.
    Max,
    /// The number of different values.
    Distinct,
    /// The value below which this part of the numbers lies.
    Quantile(f64),
    /// The first value that is not NULL.
    First,
    /// The last value that is not NULL.
    Last,
    /// True if a condition is true for any message.
    Any,
    /// The variance of a sample of numbers.
    Variance,
    /// The standard deviation of a sample of numbers.
    Deviation,
    /// The first values, at most this number.
    List(usize),
    /// This number of the most frequent values.
    Top(usize),
}

impl Kind {
    /// True if it takes a condition.
    pub(super) fn takes_condition(self) -> bool {
        matches!(self, Kind::CountIf | Kind::Any)
    }
}

/// A function and the expression that it is applied to.
#[derive(Debug, Clone)]
pub struct Function {
    text: String,
    kind: Kind,
    /// None for `count(*)`.
    of: Option<Expression>,
}

impl Function {
    /// Returns the computation.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// The expression whose values it takes, if it takes any.
    pub(super) fn of(&self) -> Option<&Expression> {
        self.of.as_ref()
    }

    /// The function as it was written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Parses an expression, of which a text has the bytes from `at` on.
fn expression(sql: &str, at: usize) -> Result<Expression, FormatError> {
    let shifted = |error: ExpressionError| FormatError {
        range: error.range.map(|range| range.start + at..range.end + at),
        message: error.message,
        help: error.help,
    };
    thalweg_expression::check(sql).map_err(shifted)?;
    Expression::parse(sql).map_err(shifted)
}

/// Divides arguments at the last comma, and parses the one after it.
fn second<T: FromStr + PartialOrd>(inside: &str, range: RangeInclusive<T>) -> Option<(&str, T)> {
    let (of, last) = inside.rsplit_once(',')?;
    let last: T = last.trim().parse().ok()?;
    range.contains(&last).then_some((of, last))
}

/// Reads the arguments of a function that takes a number after the expression.
fn with_number<'a>(name: &str, inside: &'a str) -> Result<(&'a str, Kind), FormatError> {
    let (found, numbers) = match name {
        "list" => {
            let found = second(inside, 1..=list::LONGEST).map(|(of, most)| (of, Kind::List(most)));
            (found, format!("a whole number from 1 to {}", list::LONGEST))
        }
        "top_k" => {
            let found = second(inside, 1..=top::LONGEST).map(|(of, most)| (of, Kind::Top(most)));
            (found, format!("a whole number from 1 to {}", top::LONGEST))
        }
        _ => {
            let found = second(inside, 0.0..=1.0).map(|(of, part)| (of, Kind::Quantile(part)));
            (found, "a number from 0 to 1".to_owned())
        }
    };
    found.ok_or_else(|| {
        let error = FormatError::new(format!("`{name}` needs {numbers} after a comma."));
        error.help(format!("Write for example `{}`.", example(name)))
    })
}

fn example(name: &str) -> String {
    match name {
        "quantile" => "quantile(ms, 0.95)".to_owned(),
        "list" => "list(path, 100)".to_owned(),
        "top_k" => "top_k(path, 10)".to_owned(),
        _ => format!("{name}(field)"),
    }
}

/// Returns an example of the function that has this name in other programs. The nearest name would be another
/// function: that of `avg` is `any`.
fn elsewhere(name: &str) -> Option<&'static str> {
    Some(match name {
        "avg" | "average" => "mean(ms)",
        "median" | "p50" => "quantile(ms, 0.5)",
        "p90" => "quantile(ms, 0.9)",
        "percentile" | "approx_percentile" | "p95" => "quantile(ms, 0.95)",
        "p99" => "quantile(ms, 0.99)",
        "array_agg" | "collect" => "list(path, 100)",
        "var" | "var_samp" => "variance(ms)",
        "std" => "stddev(ms)",
        "any_value" => "first(path)",
        "nunique" | "count_distinct" => "distinct(user)",
        _ => return None,
    })
}

impl FromStr for Function {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let whole = text.trim_end();
        let (name, inside, at) = match (whole.find('('), whole.strip_suffix(')')) {
            (Some(open), Some(before)) if open < before.len() => {
                (&whole[..open], Some(&before[open + 1..]), open + 1)
            }
            _ => (whole, None, 0),
        };
        let name = name.trim().to_lowercase();
        let known = NAMES.contains(&name.as_str());
        if !known {
            let error = FormatError::new(format!("`{}` is not a function of `aggregate`.", text.trim()));
            let help = match (elsewhere(&name), nearest(&name, NAMES)) {
                (Some(example), _) => format!("Write for example `{example}`."),
                (None, Some(near)) => format!("Did you mean `{near}`?"),
                (None, None) => format!("It has {}. Write for example `sum(bytes)`.", NAMES.join(", ")),
            };
            return Err(error.help(help));
        }
        let inside = inside.filter(|inside| !inside.trim().is_empty());
        let function = |kind, of| Ok(Self { text: text.trim().to_owned(), kind, of });
        if name == "count" && inside.is_none_or(|inside| inside.trim() == "*") {
            return function(Kind::Count, None);
        }
        let Some(inside) = inside else {
            let error = FormatError::new(format!("`{name}` needs a field or an expression."));
            return Err(error.help(format!("Write for example `{}`.", example(&name))));
        };
        let (of, kind) = match name.as_str() {
            "count" => (inside, Kind::Count),
            "count_if" => (inside, Kind::CountIf),
            "sum" => (inside, Kind::Sum),
            "mean" => (inside, Kind::Mean),
            "min" => (inside, Kind::Min),
            "max" => (inside, Kind::Max),
            "distinct" => (inside, Kind::Distinct),
            "first" => (inside, Kind::First),
            "last" => (inside, Kind::Last),
            "any" => (inside, Kind::Any),
            "variance" => (inside, Kind::Variance),
            "stddev" => (inside, Kind::Deviation),
            _ => with_number(&name, inside)?,
        };
        function(kind, Some(expression(of, at)?))
    }
}

impl<'de> Deserialize<'de> for Function {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Function {
    fn schema_name() -> Cow<'static, str> {
        "AggregateFunction".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| Function::from_str(text).map(|_| ()));
        json_schema!({ "type": "string", "format": FORMAT, "examples": ["count(*)", "sum(bytes / 1024)", "quantile(ms, 0.95)"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_an_expression_inside() {
        let parsed = |text: &str| {
            let function: Function = text.parse().unwrap();
            (function.kind(), function.of().map(|of| of.sql().trim().to_owned()))
        };
        assert_eq!(parsed("count"), (Kind::Count, None));
        assert_eq!(parsed("COUNT( * )"), (Kind::Count, None));
        assert_eq!(parsed("count()"), (Kind::Count, None));
        assert_eq!(parsed("count(user)"), (Kind::Count, Some("user".to_owned())));
        assert_eq!(parsed("count_if(status >= 500)"), (Kind::CountIf, Some("status >= 500".to_owned())));
        assert_eq!(parsed("sum(round(a, 2))"), (Kind::Sum, Some("round(a, 2)".to_owned())));
        assert_eq!(
            parsed("quantile(coalesce(a, b), 0.5)"),
            (Kind::Quantile(0.5), Some("coalesce(a, b)".to_owned()))
        );
        assert_eq!(parsed("List(a, 10)"), (Kind::List(10), Some("a".to_owned())));
        assert_eq!(parsed("top_k(round(a, 2), 3)"), (Kind::Top(3), Some("round(a, 2)".to_owned())));
        assert_eq!(parsed("any(a > 5)"), (Kind::Any, Some("a > 5".to_owned())));
        assert_eq!(parsed("stddev(a)"), (Kind::Deviation, Some("a".to_owned())));
    }

    #[test]
    fn mistakes_are_told_at_their_place() {
        let error = |text: &str| Function::from_str(text).unwrap_err();
        assert_eq!(error("summ(a)").message, "`summ(a)` is not a function of `aggregate`.");
        assert_eq!(error("summ(a)").help.as_deref(), Some("Did you mean `sum`?"));
        for (text, example) in [
            ("avg(a)", "mean(ms)"),
            ("MEDIAN(a)", "quantile(ms, 0.5)"),
            ("p99(a)", "quantile(ms, 0.99)"),
            ("approx_percentile(a, 0.9)", "quantile(ms, 0.95)"),
            ("array_agg(a)", "list(path, 100)"),
            ("var(a)", "variance(ms)"),
            ("std(a)", "stddev(ms)"),
            ("any_value(a)", "first(path)"),
            ("count_distinct(a)", "distinct(user)"),
        ] {
            let help = error(text).help.unwrap();
            assert_eq!(help, format!("Write for example `{example}`."), "{text}");
            assert!(Function::from_str(example).is_ok(), "{example}");
        }
        assert_eq!(error("sum()").message, "`sum` needs a field or an expression.");
        for text in ["quantile(a)", "quantile(a, 95)", "quantile(a, b)"] {
            assert_eq!(error(text).message, "`quantile` needs a number from 0 to 1 after a comma.", "{text}");
        }
        for text in ["list(a)", "list(a, 0)", "list(a, 10001)", "list(a, -1)", "list(a, 1.5)"] {
            let expected = "`list` needs a whole number from 1 to 10000 after a comma.";
            assert_eq!(error(text).message, expected, "{text}");
        }
        let many = error("top_k(a, 101)");
        assert_eq!(many.message, "`top_k` needs a whole number from 1 to 100 after a comma.");
        assert_eq!(many.help.as_deref(), Some("Write for example `top_k(path, 10)`."));
        assert_eq!(error("list()").help.as_deref(), Some("Write for example `list(path, 100)`."));
        let wrong = error("sum(a >= >= 5)");
        assert_eq!(wrong.range, Some(9..11));
        for text in ["", "(", ")", ")(", "sum)a(", "sum(a", "é("] {
            assert!(Function::from_str(text).is_err(), "{text}");
        }
    }
}
