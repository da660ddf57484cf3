//! The operator `||`, with a bound: a chain `a || b || c` becomes one function.
//!
//! DataFusion's operator joins two texts. Each `||` of a chain makes a text of its own then, and nothing
//! limits how long they become. Here, the sizes are added first: a result that is too long is never made. The
//! result is NULL if one of the parts is.
//!
//! DataFusion's `concat` was rejected: it leaves out NULLs, and knows no bound either.

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    cast::AsArray,
    new_null_array,
    types::{BinaryViewType, ByteViewType, StringViewType},
};
use arrow_schema::DataType;
use datafusion_common::{
    DFSchema, DataFusionError, Result, ScalarValue,
    tree_node::{Transformed, TransformedResult, TreeNode},
};
use datafusion_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
    expr::ScalarFunction,
    lit,
    simplify::{ExprSimplifyResult, SimplifyContext},
};

use thalweg_record::{Joined, Part};

use crate::bounded::Sizes;

/// Replaces the chains of `||` in an expression whose types are coerced.
pub(crate) fn join_chains(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    expr.transform_down(|expr| {
        let chain = match &expr {
            Expr::Cast(Cast { expr: chain, field })
                if view(field.data_type()).as_ref() == Some(field.data_type()) =>
            {
                chain
            }
            other => other,
        };
        let Some(view) = view_of(chain, schema)? else { return Ok(Transformed::no(expr)) };
        let result = expr.get_type(schema)?;
        let joined = joined(expr, schema, &view)?;
        Ok(Transformed::yes(if result == view { joined } else { cast(joined, result) }))
    })
    .data()
}

/// Returns the type in which the parts of a chain are read, if the expression is a chain.
fn view_of(expr: &Expr, schema: &DFSchema) -> Result<Option<DataType>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::StringConcat, .. }) => {
            expr.get_type(schema).map(|data_type| view(&data_type))
        }
        _ => Ok(None),
    }
}

fn view(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(DataType::BinaryView),
        _ => None,
    }
}

fn joined(chain: Expr, schema: &DFSchema, view: &DataType) -> Result<Expr> {
    let mut parts = Vec::new();
    collect(chain, schema, view, &mut parts)?;
    let parts = parts.into_iter().map(|part| match part.get_type(schema)? {
        data_type if data_type == *view => Ok(part),
        _ => Ok(cast(part, view.clone())),
    });
    let parts = parts.collect::<Result<_>>()?;
    let signature = Signature::variadic_any(Volatility::Immutable);
    let join = ScalarUDF::from(Join { result: view.clone(), signature });
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(join), parts)))
}

/// Collects the parts of a chain. A part may be a chain itself, also below a cast from one type of text to
/// another.
fn collect(chain: Expr, schema: &DFSchema, view: &DataType, parts: &mut Vec<Expr>) -> Result<()> {
    match chain {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            collect(*left, schema, view, parts)?;
            collect(*right, schema, view, parts)?;
        }
        Expr::Cast(Cast { expr, .. }) if view_of(&expr, schema)?.as_ref() == Some(view) => {
            collect(*expr, schema, view, parts)?;
        }
        part => parts.push(part),
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Join {
    result: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Join {
    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    fn simplify(&self, parts: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_null = |part: &Expr| matches!(part, Expr::Literal(value, _) if value.is_null());
        Ok(match parts.iter().any(is_null) {
            true => ExprSimplifyResult::Simplified(lit(ScalarValue::try_from(&self.result)?)),
            false => ExprSimplifyResult::Original(parts),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ScalarFunctionArgs { args, number_rows, .. } = args;
        let is_one = args.iter().all(|part| matches!(part, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { number_rows };
        let joined: ArrayRef = match self.result {
            DataType::BinaryView => match parts::<BinaryViewType>(&args, bytes)? {
                Some(parts) => Arc::new(counted(Joined::bytes(parts, rows), rows)?.finish()),
                None => new_null_array(&self.result, rows),
            },
            _ => match parts::<StringViewType>(&args, text)? {
                Some(parts) => Arc::new(counted(Joined::texts(parts, rows), rows)?.finish()),
                None => new_null_array(&self.result, rows),
            },
        };
        Ok(match is_one {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?),
            false => ColumnarValue::Array(joined),
        })
    }
}

fn text(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

fn bytes(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::BinaryView(value) => value.as_deref(),
        _ => None,
    }
}

/// Returns the parts; `None` if a constant is NULL.
fn parts<'a, V: ByteViewType>(
    args: &'a [ColumnarValue],
    constant: fn(&'a ScalarValue) -> Option<&'a V::Native>,
) -> Result<Option<Vec<Part<'a, V>>>> {
    let part = |arg: &'a ColumnarValue| match arg {
        ColumnarValue::Scalar(value) => Ok(constant(value).map(Part::One)),
        ColumnarValue::Array(values) => match values.as_byte_view_opt() {
            Some(values) => Ok(Some(Part::Each(values))),
            None => Err(DataFusionError::Execution(format!("`||` cannot join a {}", values.data_type()))),
        },
    };
    args.iter().map(part).collect()
}

/// Counts values before they are made.
fn counted<V: ByteViewType>(joined: Joined<'_, V>, rows: usize) -> Result<Joined<'_, V>> {
    let mut sizes = Sizes::of(rows);
    for (row, size) in joined.sizes().iter().enumerate() {
        sizes.add(*size, || distinct(joined.parts(row)))?;
    }
    sizes.end()?;
    Ok(joined)
}

/// Returns the size of different values: a value that stands in a chain twice counts once.
fn distinct<'a>(values: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut values: Vec<_> = values.map(|value| (value.as_ptr(), value.len())).collect();
    values.sort_unstable();
    values.dedup();
    values.into_iter().map(|(_, length)| length).sum()
}
