//! Walks a syntax tree.
//!
//! sqlparser has visitors, but each is compiled for every kind of statement in SQL. That took longer than
//! compiling the rest of this crate. An expression over one message needs few kinds of nodes, and listing
//! them also defines which nodes are rejected.

use datafusion_sql::sqlparser::ast::{
    AccessExpr, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Subscript,
};

/// Returns the children of a node in the order they are written; `None` for a kind of node that expressions
/// do not support.
pub(crate) fn parts(expr: &mut Expr) -> Option<Vec<&mut Expr>> {
    Some(match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::TypedString(_) => {
            Vec::new()
        }
        Expr::Nested(of)
        | Expr::IsFalse(of)
        | Expr::IsNotFalse(of)
        | Expr::IsTrue(of)
        | Expr::IsNotTrue(of)
        | Expr::IsNull(of)
        | Expr::IsNotNull(of)
        | Expr::IsUnknown(of)
        | Expr::IsNotUnknown(of)
        | Expr::UnaryOp { expr: of, .. }
        | Expr::Cast { expr: of, .. }
        | Expr::Extract { expr: of, .. }
        | Expr::Ceil { expr: of, .. }
        | Expr::Floor { expr: of, .. } => vec![of],
        Expr::Interval(interval) => vec![&mut interval.value],
        Expr::IsDistinctFrom(left, right)
        | Expr::IsNotDistinctFrom(left, right)
        | Expr::BinaryOp { left, right, .. }
        | Expr::Like { expr: left, pattern: right, .. }
        | Expr::ILike { expr: left, pattern: right, .. }
        | Expr::SimilarTo { expr: left, pattern: right, .. }
        | Expr::AtTimeZone { timestamp: left, time_zone: right }
        | Expr::Position { expr: left, r#in: right } => vec![left, right],
        Expr::Between { expr, low, high, .. } => vec![expr, low, high],
        Expr::InList { expr, list, .. } => std::iter::once(expr.as_mut()).chain(list).collect(),
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            [Some(expr), substring_from.as_mut(), substring_for.as_mut()]
                .into_iter()
                .flatten()
                .map(AsMut::as_mut)
                .collect()
        }
        Expr::Trim { expr, trim_what, trim_characters, .. } => trim_what
            .as_mut()
            .into_iter()
            .chain([expr])
            .map(AsMut::as_mut)
            .chain(trim_characters.iter_mut().flatten())
            .collect(),
        Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
            [Some(expr), Some(overlay_what), Some(overlay_from), overlay_for.as_mut()]
                .into_iter()
                .flatten()
                .map(AsMut::as_mut)
                .collect()
        }
        Expr::Case { operand, conditions, else_result, .. } => operand
            .as_mut()
            .into_iter()
            .map(AsMut::as_mut)
            .chain(conditions.iter_mut().flat_map(|when| [&mut when.condition, &mut when.result]))
            .chain(else_result.as_mut().into_iter().map(AsMut::as_mut))
            .collect(),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let steps = access_chain.iter_mut().map(|access| match access {
                AccessExpr::Dot(step) | AccessExpr::Subscript(Subscript::Index { index: step }) => Some(step),
                AccessExpr::Subscript(Subscript::Slice { .. }) => None,
            });
            std::iter::once(Some(root.as_mut())).chain(steps).collect::<Option<_>>()?
        }
        Expr::Function(function) => match &mut function.args {
            FunctionArguments::None => Vec::new(),
            FunctionArguments::Subquery(_) => return None,
            FunctionArguments::List(list) => list.args.iter_mut().map(argument).collect::<Option<_>>()?,
        },
        _ => return None,
    })
}

fn argument(argument: &mut FunctionArg) -> Option<&mut Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(expr), .. } => Some(expr),
        _ => None,
    }
}
