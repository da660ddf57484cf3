//! The text of an expression, parsed and validated.

use std::{borrow::Cow, collections::HashMap, fmt, sync::Arc};

use arrow_schema::{DataType, Field, Schema as Columns};
use datafusion_sql::sqlparser::ast::{BinaryOperator, Expr};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    error::ExpressionError,
    evaluate::{column_type, field_of, not_a_condition},
    isolate::isolated,
    names,
    plan::{self, Plan, Purpose},
    slips, syntax, walk,
};

/// A SQL expression over the columns of a batch. A clone costs as much as cloning an `Arc`.
///
/// ```
/// use thalweg_expression::Expression;
///
/// let expression = Expression::parse("status >= 500 AND request.host = 'a.example'")?;
/// assert_eq!(expression.columns(), ["status", "request.host"]);
///
/// let mistake = Expression::parse("status >= >= 500").unwrap_err();
/// assert_eq!(mistake.range, Some(10..12));
/// # Ok::<(), thalweg_expression::ExpressionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Expression(Arc<Parsed>);

#[derive(Debug)]
struct Parsed {
    sql: String,
    written: Vec<String>,
    possible: Vec<String>,
    needed: Vec<String>,
    chooses: bool,
    is_value: bool,
}

impl Expression {
    /// Parses an expression. This checks that its functions exist and have the right number of arguments.
    /// Types are checked by [`check`], or with the first batch.
    ///
    /// # Errors
    /// Returns an error if the text is not a SQL expression, or if it has parts that cannot apply to a single
    /// message.
    pub fn parse(sql: &str) -> Result<Expression, ExpressionError> {
        let (names, chooses, is_value) = isolated(|| {
            let mut tree = syntax::parse(sql)?;
            Ok((names::collect(&mut tree), chooses(&mut tree), is_value(&tree)))
        })?;
        Ok(Expression(Arc::new(Parsed {
            sql: sql.to_owned(),
            written: names.written,
            possible: names.possible,
            needed: names.needed,
            chooses,
            is_value,
        })))
    }

    /// Returns the text as it was written.
    pub fn sql(&self) -> &str {
        &self.0.sql
    }

    /// Returns the names in the expression, each once: `request.items` for `request.items[0].id`. Such a name
    /// can be a column, or a part of the JSON in a column `request`.
    pub fn columns(&self) -> &[String] {
        &self.0.written
    }

    /// Returns the names among [`columns`](Self::columns) whose absence the expression does not expect. Those
    /// in `coalesce(a, b)` or `a IS NULL` may be absent.
    pub fn needed_columns(&self) -> &[String] {
        &self.0.needed
    }

    /// True if it reads an [intrinsic column](thalweg_record::INTRINSIC), such as `payload`, or a part of it.
    pub fn names_intrinsic(&self) -> bool {
        self.0.possible.iter().any(|name| thalweg_record::INTRINSIC.contains(&name.as_str()))
    }

    /// Returns the names of all columns that it may read: for `user.name` also `user`.
    pub fn possible_columns(&self) -> &[String] {
        &self.0.possible
    }

    /// Plans the expression for columns of these types. A column that is not there is NULL. Returns the type
    /// of its values, as a field of this name.
    ///
    /// # Errors
    /// If it cannot be evaluated for any values of these types.
    pub fn result(&self, name: &str, columns: &Columns) -> Result<Field, ExpressionError> {
        let plan = self.planned(columns, Purpose::Value)?;
        Ok(field_of(name, plan.data_type.clone(), plan.kind()))
    }

    /// Plans the condition for columns of these types. A column that is not there is NULL.
    ///
    /// # Errors
    /// If it cannot be evaluated for any values of these types.
    pub fn check_condition(&self, columns: &Columns) -> Result<(), ExpressionError> {
        let plan = self.planned(columns, Purpose::Condition)?;
        match plan.data_type {
            DataType::Boolean | DataType::Null => Ok(()),
            other => Err(ExpressionError::new(not_a_condition(self, &other))),
        }
    }

    /// Checks that the expression is a condition for some types of its columns. A value such as `upper(s)` is
    /// none for any.
    ///
    /// # Errors
    /// If it certainly returns another value than true or false.
    pub fn check_possible_condition(&self) -> Result<(), ExpressionError> {
        if !self.0.is_value {
            return Ok(());
        }
        let mut found = None;
        for column in plan::samples() {
            let types = self.possible_columns().iter().map(|name| (name.as_str(), column.clone())).collect();
            match plan::plan(self.sql(), &types, Purpose::Condition).map(|plan| plan.data_type) {
                Ok(DataType::Boolean | DataType::Null) => return Ok(()),
                Ok(other) => found = found.or(Some(other)),
                Err(_) => {}
            }
        }
        match found {
            Some(other) => Err(ExpressionError::new(not_a_condition(self, &other))),
            None => Ok(()),
        }
    }

    /// Returns remarks on parts that mean something else in another language. `is_known` tells the names that
    /// messages certainly can have.
    pub fn remarks(&self, is_known: &(dyn Fn(&str) -> bool + Sync)) -> Vec<ExpressionError> {
        let found = isolated(|| {
            let mut tree = syntax::parse(self.sql())?;
            Ok(slips::remarks(self.sql(), &mut tree, is_known))
        });
        found.unwrap_or_default()
    }

    fn planned(&self, columns: &Columns, purpose: Purpose) -> Result<Plan, ExpressionError> {
        let names = self.possible_columns().iter();
        let types = names.filter_map(|name| Some((name.as_str(), column_type(columns, name)?))).collect();
        plan::plan(self.sql(), &types, purpose)
    }

    /// True if NULLs of different types may lead to different results: see [`chooses`].
    pub(crate) fn chooses(&self) -> bool {
        self.0.chooses
    }
}

/// Functions whose result has one type for several values, of which some may be NULL.
const CHOOSING: [&str; 8] =
    ["coalesce", "nvl", "ifnull", "nvl2", "nullif", "greatest", "least", "arrow_typeof"];

/// True if the types of columns do not decide whether an expression is a condition: its outermost part is
/// arithmetic, or a function that returns no argument as it is.
fn is_value(tree: &Expr) -> bool {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus, StringConcat};
    match tree {
        Expr::Nested(of) => is_value(of),
        Expr::BinaryOp { op, .. } => matches!(op, Plus | Minus | Multiply | Divide | Modulo | StringConcat),
        Expr::Function(function) => {
            let name = function.name.to_string().trim_matches('"').to_lowercase();
            !CHOOSING.contains(&name.as_str())
        }
        _ => false,
    }
}

/// True if an expression has a part that gives several values one type and returns a result also if some of
/// them are NULL. All other operators and functions return NULL for a NULL of any type.
fn chooses(tree: &mut Expr) -> bool {
    let is_choice = match tree {
        Expr::Case { .. } | Expr::Between { .. } | Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => {
            true
        }
        Expr::InList { list, .. } => list.iter().any(|item| !matches!(item, Expr::Value(_))),
        Expr::Function(function) => {
            CHOOSING.contains(&function.name.to_string().trim_matches('"').to_lowercase().as_str())
        }
        _ => false,
    };
    is_choice || walk::parts(tree).into_iter().flatten().any(chooses)
}

/// Checks an expression before there is any data. The expression must parse, and its operators and functions
/// must be valid for some column types.
///
/// # Errors
/// Returns the mistake with its position.
pub fn check(sql: &str) -> Result<(), ExpressionError> {
    Expression::parse(sql)?;
    plan::plan(sql, &HashMap::new(), Purpose::Value).map(drop)
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.sql())
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.sql() == other.sql()
    }
}

impl Eq for Expression {}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.sql())
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Expression;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a SQL expression")
            }

            fn visit_str<E: de::Error>(self, sql: &str) -> Result<Expression, E> {
                Expression::parse(sql).map_err(E::custom)
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Expression, E> {
                self.visit_str(if value { "true" } else { "false" })
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Expression, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Expression, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Expression, E> {
                if value.is_finite() {
                    self.visit_str(&format!("{value:?}"))
                } else {
                    Err(E::custom("The number is not finite, and SQL has no literal for it."))
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Expression {
    fn schema_name() -> Cow<'static, str> {
        "Expression".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "sql",
            "description": "A SQL expression over the columns of a message, such as `status >= 500 AND path NOT LIKE '/health%'`. Text is in single quotes; double quotes are for names.",
            "examples": ["status >= 500"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_types_is_no_condition() {
        for (sql, returned) in
            [("upper(s)", "text"), ("(a + 1)", "a number"), ("s || t", "text"), ("length(a.b)", "a number")]
        {
            let error = Expression::parse(sql).unwrap().check_possible_condition().unwrap_err();
            let expected = format!("`{sql}` is not a condition: it returns {returned}.");
            assert!(error.message.starts_with(&expected), "{}", error.message);
        }
        for sql in [
            "a",
            "a.b",
            "coalesce(a, b)",
            "json_get(a, 'x')",
            "starts_with(s, 'x')",
            "a > 1",
            "NOT a",
            "CASE WHEN s = 'x' THEN a ELSE b END",
            "nullif(a, b)",
            "CAST(s AS BOOLEAN)",
        ] {
            assert_eq!(Expression::parse(sql).unwrap().check_possible_condition(), Ok(()), "{sql}");
        }
    }

    #[test]
    fn names_are_kept_as_written() {
        let names = |sql: &str| Expression::parse(sql).unwrap().columns().to_vec();
        assert_eq!(
            names("requestId = 1 AND \"quoted name\" = requestid"),
            ["requestId", "quoted name", "requestid"]
        );
        assert_eq!(
            names("meta.source = 'a' AND meta.position > 5 AND meta.time < now()"),
            ["meta.source", "meta.position", "meta.time"]
        );
        assert_eq!(names("a.b[0].c['x y'] = 1 AND a IS NULL"), ["a.b", "a"]);
        assert_eq!(names("user = 'x' AND level IN ('a') AND upper(upper) = 'Y'"), ["user", "level", "upper"]);
        assert_eq!(
            names("user.name = 'x' AND user['first name'] = 'y' AND USER[0] = 1"),
            ["user.name", "user", "USER"]
        );
        assert_eq!(names("session_user.id = 1 AND localtime > 1"), ["session_user.id", "localtime"]);
        assert_eq!(names("current_date > x"), ["x"]);
        assert_eq!(names("time > 5 AND date = 'x' AND timestamp IS NULL"), ["time", "date", "timestamp"]);
    }

    #[test]
    fn names_whose_absence_is_expected_are_not_needed() {
        let needed = |sql: &str| Expression::parse(sql).unwrap().needed_columns().to_vec();
        assert_eq!(needed("status >= 500 AND coalesce(host, name.first) = 'a'"), ["status"]);
        assert_eq!(needed("a IS NULL OR b IS NOT NULL OR (c IS DISTINCT FROM d) OR e = 1"), ["e"]);
        assert_eq!(needed("CASE WHEN a = 1 THEN nvl(b, c) ELSE upper(d.x) END"), ["a", "d.x"]);
        // A field that is needed once is needed.
        assert_eq!(needed("a IS NULL OR a > 5"), ["a"]);
    }

    #[test]
    fn scalars_of_a_configuration_are_expressions() {
        let read = |json: &str| serde_json::from_str::<Expression>(json).unwrap().sql().to_owned();
        assert_eq!(read("true"), "true");
        assert_eq!(read("-1"), "-1");
        assert_eq!(read("1.5"), "1.5");
        assert_eq!(read("\"a > 1\""), "a > 1");
        assert_eq!(serde_json::to_string(&Expression::parse("a > 1").unwrap()).unwrap(), "\"a > 1\"");
        let error = serde_json::from_str::<Expression>("\"a >\"").unwrap_err();
        assert_eq!(
            error.to_string(),
            "The expression ends too early. Expected an expression. at line 1 column 5"
        );
    }
}
