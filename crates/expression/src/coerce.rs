//! Decides how values of different types combine.
//!
//! DataFusion coerces as a database must: text beside a number is cast to a number, and one text that is not
//! a number makes the query fail. In messages, text columns that mostly hold numbers are normal, and so are
//! JSON columns. These rewrites walk the planned expression from the leaves up, before DataFusion's own
//! coercion. They handle the cases that DataFusion would reject or treat surprisingly. The crate
//! documentation lists the rules.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion_common::{
    Column, DFSchema, Result, ScalarValue,
    tree_node::{Transformed, TransformedResult, TreeNode},
};
use datafusion_expr::{
    BinaryExpr, Expr, ExprSchemable, Operator, TryCast, cast, expr::InList, expr::ScalarFunction, lit,
};

use crate::{functions, json, payload_search};

/// Integers up to this value are exact as floats.
const EXACT: u64 = 1 << 53;

/// The input of the rewrites.
pub(crate) struct Rules<'a> {
    pub(crate) schema: &'a DFSchema,
    /// Returns true for a column that holds JSON text.
    pub(crate) json: &'a dyn Fn(&str) -> bool,
    /// True if `payload` means the payload, not a field of that name.
    pub(crate) payload: bool,
    /// True if the value is a condition.
    pub(crate) condition: bool,
}

/// The kinds of types that the rules distinguish.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Bool,
    Time,
    Other,
}

impl Rules<'_> {
    /// Rewrites a planned expression. Also returns true if its value is JSON text.
    pub(crate) fn apply(&self, expr: Expr) -> Result<(Expr, bool)> {
        if let Expr::Column(column) = &expr
            && (self.json)(&column.name)
            && !self.condition
        {
            return Ok((expr, true));
        }
        let expr =
            expr.unalias_nested().data.transform_up(|expr| self.node(expr).map(Transformed::yes)).data()?;
        let expr = if self.condition { truth(expr) } else { expr };
        let extracted = matches!(&expr, Expr::ScalarFunction(call) if call.name() == json::EXTRACT);
        Ok((expr, extracted))
    }

    fn node(&self, expr: Expr) -> Result<Expr> {
        if self.payload
            && let Some(search) = payload_search::recognise(&expr)
        {
            return Ok(search);
        }
        Ok(match expr {
            Expr::Column(column) if (self.json)(&column.name) => {
                look_up(json::GET, vec![Expr::Column(column)])
            }
            // A lookup needs the JSON itself, not its text.
            Expr::ScalarFunction(mut call) if json::is_lookup(call.name()) => {
                if let Some(column) = call.args.first().and_then(whole_json) {
                    call.args[0] = Expr::Column(column);
                }
                Expr::ScalarFunction(call)
            }
            Expr::BinaryExpr(binary) => self.binary(binary)?,
            Expr::Between(mut between) => {
                let [of, low, high] = self.alike([*between.expr, *between.low, *between.high], false);
                (between.expr, between.low, between.high) = (of.into(), low.into(), high.into());
                Expr::Between(between)
            }
            Expr::InList(list) => {
                let mut all = vec![*list.expr];
                all.extend(list.list);
                let mut all = self.alike_all(all, true).into_iter();
                match all.next() {
                    Some(first) => Expr::InList(InList::new(first.into(), all.collect(), list.negated)),
                    None => lit(false),
                }
            }
            Expr::IsTrue(of) => Expr::IsTrue(truth(*of).into()),
            Expr::IsFalse(of) => Expr::IsFalse(truth(*of).into()),
            Expr::IsNotTrue(of) => Expr::IsNotTrue(truth(*of).into()),
            Expr::IsNotFalse(of) => Expr::IsNotFalse(truth(*of).into()),
            Expr::Case(mut case) if case.expr.is_none() => {
                for (when, _) in &mut case.when_then_expr {
                    let condition = std::mem::replace(when.as_mut(), lit(false));
                    **when = truth(condition);
                }
                Expr::Case(case)
            }
            other => other,
        })
    }

    fn binary(&self, BinaryExpr { left, op, right }: BinaryExpr) -> Result<Expr> {
        use Operator::{
            And, Divide, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, Minus, Modulo, Multiply,
            NotEq, Or, Plus,
        };
        let (left, right) = (*left, *right);
        let (left, right) = match op {
            And | Or => (truth(left), truth(right)),
            Eq | NotEq | IsDistinctFrom | IsNotDistinctFrom => self.alike([left, right], true).into(),
            Lt | LtEq | Gt | GtEq => self.alike([left, right], false).into(),
            Plus | Minus | Multiply | Divide | Modulo => {
                if let (
                    Expr::Literal(ScalarValue::Int64(Some(a)), _),
                    Expr::Literal(ScalarValue::Int64(Some(b)), _),
                ) = (&left, &right)
                    && let Some(folded) = fold(*a, op, *b)?
                {
                    return Ok(lit(folded));
                }
                let arithmetic = |kind| matches!(kind, Kind::Text | Kind::Number);
                if arithmetic(self.kind(&left)) && arithmetic(self.kind(&right)) {
                    self.numbers(left, right)
                } else {
                    (left, right)
                }
            }
            _ => (left, right),
        };
        Ok(Expr::BinaryExpr(BinaryExpr::new(left.into(), op, right.into())))
    }

    fn numbers(&self, left: Expr, right: Expr) -> (Expr, Expr) {
        let exact = [&left, &right].into_iter().any(beyond_floats);
        let one = |expr: Expr| match self.kind(&expr) {
            // A value that cannot be calculated is an error; a condition on it is not met.
            Kind::Text if !self.condition && !exact && literal_text(&expr).is_none() => {
                cast(expr, DataType::Float64)
            }
            Kind::Text => number(expr, exact),
            _ => expr,
        };
        (one(left), one(right))
    }

    fn alike<const N: usize>(&self, operands: [Expr; N], equality: bool) -> [Expr; N] {
        let mut alike = self.alike_all(operands.to_vec(), equality).into_iter();
        operands.map(|operand| alike.next().unwrap_or(operand))
    }

    /// Converts operands of one comparison so that they can be compared.
    fn alike_all(&self, operands: Vec<Expr>, equality: bool) -> Vec<Expr> {
        let kinds: Vec<Kind> = operands.iter().map(|operand| self.kind(operand)).collect();
        if !kinds.contains(&Kind::Text) {
            return operands;
        }
        let convert = |convert: &dyn Fn(Expr) -> Expr| {
            let each = operands.iter().cloned().zip(&kinds);
            each.map(|(operand, kind)| if *kind == Kind::Text { convert(operand) } else { operand }).collect()
        };
        if kinds.contains(&Kind::Number) {
            let words = |operand: &Expr| matches!(literal_text(operand), Some(text) if parse(text).is_none());
            if equality && operands.iter().any(words) {
                return operands
                    .into_iter()
                    .zip(kinds)
                    .map(|(operand, kind)| match kind {
                        Kind::Number => cast(operand, DataType::Utf8View),
                        _ => operand,
                    })
                    .collect();
            }
            let exact = operands.iter().any(beyond_floats);
            convert(&|operand| number(operand, exact))
        } else if kinds.contains(&Kind::Bool) {
            convert(&truth_of_text)
        } else if let Some(time) =
            operands.iter().zip(&kinds).find(|(_, kind)| **kind == Kind::Time).map(|(operand, _)| operand)
            && let Ok(data_type) = time.get_type(self.schema)
        {
            // A literal that is not a time is an error; a text in a message that is not a time is NULL.
            convert(&|operand| match literal_text(&operand) {
                Some(_) => operand,
                None => Expr::TryCast(TryCast::new(Box::new(operand), data_type.clone())),
            })
        } else {
            operands
        }
    }

    fn kind(&self, expr: &Expr) -> Kind {
        match expr.get_type(self.schema) {
            Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => Kind::Text,
            Ok(DataType::Boolean) => Kind::Bool,
            Ok(DataType::Timestamp(..) | DataType::Date32 | DataType::Date64) => Kind::Time,
            Ok(data_type) if data_type.is_numeric() => Kind::Number,
            _ => Kind::Other,
        }
    }
}

/// Adds, subtracts or multiplies constants. DataFusion would do the same, but wrap around on overflow.
fn fold(a: i64, op: Operator, b: i64) -> Result<Option<i64>> {
    let folded = match op {
        Operator::Plus => a.checked_add(b),
        Operator::Minus => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        _ => return Ok(None),
    };
    match folded {
        Some(value) => Ok(Some(value)),
        None => Err(datafusion_common::DataFusionError::Plan(format!(
            "`{a} {op} {b}` is more than a 64-bit integer can hold"
        ))),
    }
}

fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

fn parse(text: &str) -> Option<ScalarValue> {
    let text = text.trim();
    match text.parse() {
        Ok(int) => Some(ScalarValue::Int64(Some(int))),
        Err(_) => text.parse().ok().map(|float| ScalarValue::Float64(Some(float))),
    }
}

fn beyond_floats(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => value.unsigned_abs() > EXACT,
        _ => false,
    }
}

/// Converts text to a number; NULL if it is not a number.
fn number(text: Expr, exact: bool) -> Expr {
    if let Some(literal) = literal_text(&text) {
        return Expr::Literal(parse(literal).unwrap_or(ScalarValue::Float64(None)), None);
    }
    let (function, data_type) =
        if exact { (json::GET_INT, DataType::Int64) } else { (json::GET_FLOAT, DataType::Float64) };
    typed(text, function, data_type)
}

/// Converts text to a boolean; NULL if it is neither true nor false.
fn truth_of_text(text: Expr) -> Expr {
    typed(text, json::GET_BOOL, DataType::Boolean)
}

/// Converts an operand of a condition: a JSON lookup becomes a lookup of a boolean.
fn truth(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(call) if is_text_lookup(&call) => look_up(json::GET_BOOL, call.args),
        other => other,
    }
}

/// Returns the typed form of a JSON lookup, or a cast of any other text.
fn typed(text: Expr, function: &str, data_type: DataType) -> Expr {
    match text {
        Expr::ScalarFunction(call) if is_text_lookup(&call) => look_up(function, call.args),
        text => Expr::TryCast(TryCast::new(Box::new(text), data_type)),
    }
}

fn is_text_lookup(call: &ScalarFunction) -> bool {
    call.name() == json::GET || call.name() == json::EXTRACT
}

fn look_up(function: &str, arguments: Vec<Expr>) -> Expr {
    match functions::find(function) {
        Some(function) => Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments)),
        // The table contains all lookups, so this case cannot occur; the argument is the closest value.
        None => arguments.into_iter().next().unwrap_or_else(|| lit(ScalarValue::Null)),
    }
}

/// Returns the column whose whole text the expression is.
fn whole_json(expr: &Expr) -> Option<Column> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == json::GET && call.args.len() == 1 => match &call.args[0]
        {
            Expr::Column(column) => Some(column.clone()),
            _ => None,
        },
        _ => None,
    }
}
