//! The functions of `aggregate`, as texts: `count(*)`, `sum(bytes / 1024)`, `quantile(ms, 0.95)`.

use std::borrow::Cow;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, nearest, register_format};
use thalweg_expression::{Expression, ExpressionError};

const FORMAT: &str = "aggregate-function";

const NAMES: [&str; 10] =
    ["count", "count_if", "sum", "mean", "min", "max", "distinct", "quantile", "first", "last"];

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

/// Divides the arguments of `quantile` at the last comma.
fn quantile(inside: &str) -> Option<(&str, f64)> {
    let (of, part) = inside.rsplit_once(',')?;
    let part: f64 = part.trim().parse().ok()?;
    (0.0..=1.0).contains(&part).then_some((of, part))
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
            let help = match nearest(&name, NAMES) {
                Some(near) => format!("Did you mean `{near}`?"),
                None => format!("It has {}. Write for example `sum(bytes)`.", NAMES.join(", ")),
            };
            return Err(error.help(help));
        }
        let inside = inside.filter(|inside| !inside.trim().is_empty());
        let function = |kind, of| Ok(Self { text: text.trim().to_owned(), kind, of });
        if name == "count" && inside.is_none_or(|inside| inside.trim() == "*") {
            return function(Kind::Count, None);
        }
        let Some(inside) = inside else {
            let example =
                if name == "quantile" { "quantile(ms, 0.95)".to_owned() } else { format!("{name}(field)") };
            let error = FormatError::new(format!("`{name}` needs a field or an expression."));
            return Err(error.help(format!("Write for example `{example}`.")));
        };
        let kind = match name.as_str() {
            "count" => Kind::Count,
            "count_if" => Kind::CountIf,
            "sum" => Kind::Sum,
            "mean" => Kind::Mean,
            "min" => Kind::Min,
            "max" => Kind::Max,
            "distinct" => Kind::Distinct,
            "first" => Kind::First,
            "last" => Kind::Last,
            _ => {
                let Some((of, part)) = quantile(inside) else {
                    let error = FormatError::new("`quantile` needs a number from 0 to 1 after a comma.");
                    return Err(error.help("Write for example `quantile(ms, 0.95)`."));
                };
                return function(Kind::Quantile(part), Some(expression(of, at)?));
            }
        };
        function(kind, Some(expression(inside, at)?))
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
    }

    #[test]
    fn mistakes_are_told_at_their_place() {
        let error = |text: &str| Function::from_str(text).unwrap_err();
        assert_eq!(error("summ(a)").message, "`summ(a)` is not a function of `aggregate`.");
        assert_eq!(error("summ(a)").help.as_deref(), Some("Did you mean `sum`?"));
        assert_eq!(error("sum()").message, "`sum` needs a field or an expression.");
        for text in ["quantile(a)", "quantile(a, 95)", "quantile(a, b)"] {
            assert_eq!(error(text).message, "`quantile` needs a number from 0 to 1 after a comma.", "{text}");
        }
        let wrong = error("sum(a >= >= 5)");
        assert_eq!(wrong.range, Some(9..11));
        for text in ["", "(", ")", ")(", "sum)a(", "sum(a", "é("] {
            assert!(Function::from_str(text).is_err(), "{text}");
        }
    }
}
