//! Slips in good SQL, which mean something in another language: `'a' + b` for texts that are joined, a format
//! of Java, `a | upper`, double quotes around a text.

use std::ops::Range;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Spanned, Value,
    ValueWithSpan,
};

use crate::{
    error::{ExpressionError, range},
    functions, walk,
};

/// The functions whose arguments after the first are formats.
const FORMATTING: [&str; 7] = [
    "to_timestamp",
    "to_timestamp_seconds",
    "to_timestamp_millis",
    "to_timestamp_micros",
    "to_timestamp_nanos",
    "to_date",
    "to_char",
];

/// Checks that no text that is never a number is an operand of arithmetic: the result would be NULL.
pub(crate) fn check_arithmetic(
    sql: &str,
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
) -> Result<(), ExpressionError> {
    use BinaryOperator::{Divide, Minus, Modulo, Multiply, Plus};
    if !matches!(op, Plus | Minus | Multiply | Divide | Modulo) {
        return Ok(());
    }
    for operand in [left, right] {
        // A text with digits may be a time or an interval.
        let Some(text) = text_of(operand) else { continue };
        if text.contains(|character: char| character.is_ascii_digit()) || text.trim().parse::<f64>().is_ok() {
            continue;
        }
        let mistake = ExpressionError::new(format!(
            "`{operand}` is no number, so `{op}` has no result for any message."
        ));
        let help = match op {
            Plus => "Texts are joined by `||`.",
            _ => "A field is written without quotes.",
        };
        return Err(mistake.at(range(sql, operand.span())).help(help));
    }
    Ok(())
}

/// Checks that each format of a time has a `%`: another one is plain text.
pub(crate) fn check_format(sql: &str, function: &Function) -> Result<(), ExpressionError> {
    let name = function.name.to_string().trim_matches('"').to_lowercase();
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    if !FORMATTING.contains(&name.as_str()) {
        return Ok(());
    }
    for argument in list.args.iter().skip(1) {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(format)) = argument else { continue };
        if let Some(text) = text_of(format)
            && !text.contains('%')
        {
            let mistake = ExpressionError::new(format!("`{format}` is no format of a time: it has no `%`."));
            return Err(mistake
                .at(range(sql, format.span()))
                .help("It is written as for `strftime`, for example `%Y-%m-%d %H:%M:%S`."));
        }
    }
    Ok(())
}

/// Returns the remarks on a tree. `is_known` tells the names that messages certainly can have.
pub(crate) fn remarks(sql: &str, tree: &mut Expr, is_known: &dyn Fn(&str) -> bool) -> Vec<ExpressionError> {
    let mut found = Vec::new();
    collect(sql, tree, is_known, &mut found);
    found
}

fn collect(sql: &str, expr: &mut Expr, is_known: &dyn Fn(&str) -> bool, found: &mut Vec<ExpressionError>) {
    if let Expr::BinaryOp { left, op, right } = &*expr {
        found.extend(pipe(sql, left, op, right, is_known));
        found.extend(quoted(sql, left, op, right, is_known));
    }
    for part in walk::parts(expr).into_iter().flatten() {
        collect(sql, part, is_known, found);
    }
}

/// Finds a value that is handed to a function as in jq.
fn pipe(
    sql: &str,
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    is_known: &dyn Fn(&str) -> bool,
) -> Option<ExpressionError> {
    let Expr::Identifier(name) = right else { return None };
    let is_function =
        name.quote_style.is_none() && functions::is_known(&name.value) && !is_known(&name.value);
    if *op != BinaryOperator::BitwiseOr || !is_function {
        return None;
    }
    let message = format!("`{left} | {name}` joins the bits of two numbers, and `{name}` is a field there.");
    let remark = ExpressionError::new(message).at(range(sql, right.span()));
    Some(remark.help(format!("Write `{name}({left})` for the function.")))
}

/// Finds a text in double quotes, which is the name of a field.
fn quoted(
    sql: &str,
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    is_known: &dyn Fn(&str) -> bool,
) -> Option<ExpressionError> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if !matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
        return None;
    }
    let name_in = |side: &Expr| {
        let Expr::Identifier(Ident { value, quote_style: Some('"'), span }) = side else { return None };
        let place: Range<usize> = range(sql, *span)?;
        // The quotes are not those that a reserved word got, and not needed.
        let is_quoted = sql.get(place.clone())?.starts_with('"');
        let is_plain = value.chars().all(|character| character.is_alphanumeric() || character == '_');
        (is_quoted && is_plain && !is_known(value)).then(|| (value.clone(), place))
    };
    let (name, place) = match (name_in(left), name_in(right)) {
        (None, Some(found)) | (Some(found), None) => found,
        _ => return None,
    };
    let message = format!("`\"{name}\"` is the name of a field, because of its double quotes.");
    Some(ExpressionError::new(message).at(Some(place)).help(format!("A text is written `'{name}'`.")))
}

/// Returns the text that an expression is.
fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Expression, check};

    fn mistake(sql: &str) -> (Option<&str>, String, String) {
        let error = check(sql).unwrap_err();
        (error.range.and_then(|range| sql.get(range)), error.message, error.help.unwrap_or_default())
    }

    #[test]
    fn a_text_is_no_number_in_any_message() {
        assert_eq!(
            mistake("'a' + 1"),
            (
                Some("'a'"),
                "`'a'` is no number, so `+` has no result for any message.".to_owned(),
                "Texts are joined by `||`.".to_owned()
            )
        );
        assert_eq!(mistake("length(s) * 'ms'").0, Some("'ms'"));
        for sql in ["'1' + 1", "a + '1.5'", "now() - INTERVAL '1 day'", "'a' || b", "a + 'inf'"] {
            assert_eq!(check(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn a_format_without_a_percent_sign_is_that_of_another_language() {
        assert_eq!(
            mistake("to_timestamp(ts, 'yyyy-MM-dd')"),
            (
                Some("'yyyy-MM-dd'"),
                "`'yyyy-MM-dd'` is no format of a time: it has no `%`.".to_owned(),
                "It is written as for `strftime`, for example `%Y-%m-%d %H:%M:%S`.".to_owned()
            )
        );
        assert_eq!(mistake("TO_CHAR(now(), 'HH:mm')").0, Some("'HH:mm'"));
        for sql in ["to_timestamp(ts, '%d.%m.%Y')", "to_timestamp(ts)", "to_timestamp('2020-01-01')"] {
            assert_eq!(check(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn what_means_something_in_another_language_has_a_remark() {
        let remarks = |sql: &str, known: &[&str]| {
            let expression = Expression::parse(sql).unwrap();
            let found = expression.remarks(&|name| known.contains(&name));
            found.into_iter().map(|remark| remark.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            remarks("s | upper", &[]),
            [
                "`s | upper` joins the bits of two numbers, and `upper` is a field there. Write `upper(s)` for the \
              function."
            ]
        );
        assert_eq!(
            remarks("NOT (s <> \"y\")", &["s"]),
            ["`\"y\"` is the name of a field, because of its double quotes. A text is written `'y'`."]
        );
        for (sql, known) in [
            ("s | upper", vec!["upper"]),
            ("s | \"upper\"", vec![]),
            ("s | mask", vec![]),
            ("s = \"y\"", vec!["y"]),
            ("s = \"user-agent\"", vec![]),
            ("\"s\" = \"y\"", vec![]),
            ("user = 'y'", vec![]),
        ] {
            assert_eq!(remarks(sql, &known), [""; 0], "{sql}");
        }
    }
}
