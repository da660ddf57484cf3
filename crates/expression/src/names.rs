//! Resolves the columns of an expression.
//!
//! Names are resolved against the columns of a batch in the syntax tree, before DataFusion sees it.
//! DataFusion's own resolution is for tables and schemas; it supports neither dotted names nor lookups in
//! JSON. After [`resolve`], every name is one identifier, and every lookup is a call of `json_get` or
//! `json_extract`.

use datafusion_sql::sqlparser::{
    ast::{
        AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
        FunctionArguments, Ident, ObjectName, Spanned, Subscript, UnaryOperator, Value,
    },
    tokenizer::Span,
};

use crate::{json, walk};

/// A name as written: `a.b[0].c` has the names `a` and `b`, followed by the steps `0` and `c`.
struct Reference {
    names: Vec<String>,
    steps: Vec<json::Step>,
    span: Span,
}

impl Reference {
    /// Returns the reference that a tree node represents, if it is one.
    fn of(expr: &Expr) -> Option<Self> {
        let span = expr.span();
        let (names, steps) = match expr {
            Expr::Identifier(name) => (vec![name.value.clone()], Vec::new()),
            Expr::CompoundIdentifier(names) => {
                (names.iter().map(|name| name.value.clone()).collect(), Vec::new())
            }
            Expr::CompoundFieldAccess { root, access_chain }
                if matches!(**root, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) =>
            {
                let Self { mut names, mut steps, .. } = Self::of(root)?;
                for access in access_chain {
                    match access {
                        AccessExpr::Dot(Expr::Identifier(name)) if steps.is_empty() => {
                            names.push(name.value.clone());
                        }
                        AccessExpr::Dot(Expr::Identifier(name)) => {
                            steps.push(json::Step::Key(name.value.clone()));
                        }
                        AccessExpr::Subscript(Subscript::Index { index: Expr::Value(value) }) => {
                            steps.push(match &value.value {
                                Value::Number(number, _) => json::Step::Index(number.parse().ok()?),
                                Value::SingleQuotedString(key) => json::Step::Key(key.clone()),
                                _ => return None,
                            });
                        }
                        _ => return None,
                    }
                }
                (names, steps)
            }
            _ => return None,
        };
        Some(Self { names, steps, span })
    }

    /// Returns the column name formed by the first `names` parts.
    fn prefix(&self, names: usize) -> String {
        self.names[..names].join(".")
    }

    fn whole(&self) -> String {
        self.prefix(self.names.len())
    }
}

/// The kind of column that a name refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Column,
    JsonColumn,
    Nothing,
}

/// The names in an expression, and all columns that they could mean.
#[derive(Default)]
pub(crate) struct Names {
    /// The names as written, joined by dots.
    pub(crate) written: Vec<String>,
    /// The names of `written`, and for `a.b` also `a`, since `a` may hold JSON.
    pub(crate) possible: Vec<String>,
    /// The names of `written` whose absence the expression does not expect: see [`expects_null`].
    pub(crate) needed: Vec<String>,
}

/// Collects the names in a parsed tree.
pub(crate) fn collect(tree: &mut Expr) -> Names {
    let mut names = Names::default();
    collect_into(tree, true, &mut names);
    names
}

fn collect_into(expr: &mut Expr, is_needed: bool, names: &mut Names) {
    if let Some(reference) = Reference::of(expr) {
        add(&mut names.written, reference.whole());
        if is_needed {
            add(&mut names.needed, reference.whole());
        }
        for count in (1..=reference.names.len()).rev() {
            add(&mut names.possible, reference.prefix(count));
        }
        return;
    }
    let is_needed = is_needed && !expects_null(expr);
    for part in walk::parts(expr).into_iter().flatten() {
        collect_into(part, is_needed, names);
    }
}

/// True if the author of an expression expects that its parts may be NULL, and says what happens then.
fn expects_null(expr: &Expr) -> bool {
    match expr {
        Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..) => true,
        Expr::Function(function) => {
            const EXPECTING: [&str; 6] = ["coalesce", "nvl", "ifnull", "nvl2", "concat", "concat_ws"];
            EXPECTING.contains(&function.name.to_string().trim_matches('"').to_lowercase().as_str())
        }
        _ => false,
    }
}

fn add(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Replaces every reference by one identifier, or by a lookup in a JSON column. Returns the names of missing
/// columns.
pub(crate) fn resolve(tree: &mut Expr, found: &dyn Fn(&str) -> Found) -> Vec<String> {
    let mut resolver = Resolver { found, missing: Vec::new() };
    // An expression that is only a reference stays JSON, so it can be stored as a field.
    resolver.visit(tree, json::EXTRACT);
    resolver.missing
}

struct Resolver<'a> {
    found: &'a dyn Fn(&str) -> Found,
    missing: Vec<String>,
}

impl Resolver<'_> {
    /// Resolves the names below `expr`. `lookup` is the function that reads a part of a JSON column.
    fn visit(&mut self, expr: &mut Expr, lookup: &str) {
        if let Some(reference) = Reference::of(expr) {
            if let Some(resolved) = self.resolve(&reference, lookup) {
                *expr = resolved;
            }
            return;
        }
        spell_out(expr);
        for part in walk::parts(expr).into_iter().flatten() {
            self.visit(part, json::GET);
        }
    }

    fn resolve(&mut self, reference: &Reference, lookup: &str) -> Option<Expr> {
        let identifier = |name: String| {
            Expr::Identifier(Ident { value: name, quote_style: Some('"'), span: reference.span })
        };
        let all = reference.names.len();
        for names in (1..=all).rev() {
            let name = reference.prefix(names);
            let whole = names == all && reference.steps.is_empty();
            match (self.found)(&name) {
                Found::Column | Found::JsonColumn if whole => return Some(identifier(name)),
                Found::JsonColumn => {
                    let mut path: Vec<json::Step> =
                        reference.names[names..].iter().map(|key| json::Step::Key(key.clone())).collect();
                    path.extend(reference.steps.iter().cloned());
                    let path = Value::SingleQuotedString(json::path_text(&path));
                    let arguments = [identifier(name), Expr::Value(path.with_span(reference.span))];
                    return Some(call(lookup, arguments, reference.span));
                }
                // A column of plain text or numbers has no parts; DataFusion reports that.
                Found::Column if names == all => return None,
                Found::Column | Found::Nothing => {}
            }
        }
        let name = reference.whole();
        add(&mut self.missing, name.clone());
        Some(identifier(name))
    }
}

/// Rewrites `NOT x` and `-x` as the equivalent `x = false` and `-1 * x`. DataFusion accepts the short forms
/// only for booleans and numbers, before types can be coerced. The long forms are coerced like any other
/// comparison or product.
fn spell_out(expr: &mut Expr) {
    let Expr::UnaryOp { op, expr: operand } = expr else { return };
    let (left, op, right) = match op {
        UnaryOperator::Not => (take(operand), BinaryOperator::Eq, Value::Boolean(false)),
        UnaryOperator::Minus if Reference::of(operand).is_some() => {
            (take(operand), BinaryOperator::Multiply, Value::Number("-1".to_owned(), false))
        }
        _ => return,
    };
    let right = Expr::Value(right.with_empty_span());
    *expr = Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) };
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}

fn call(name: &str, arguments: [Expr; 2], span: Span) -> Expr {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident { value: name.to_owned(), quote_style: None, span }]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
