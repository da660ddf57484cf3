//! Compiles a syntax tree and column types into a plan that can be evaluated.
//!
//! The stages are DataFusion's: plan, coerce, simplify, create the physical expression. Our own rules for
//! names (`names`) run before planning; those for types (`coerce`) run between planning and coercion.
//!
//! A missing column is NULL, and a NULL has no type of its own. Usually the operator or function around it
//! determines the type. Otherwise (DataFusion finds no overload, for example) several types are tried in turn
//! until planning succeeds. The value is NULL in any type, so any type that fits is correct.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use datafusion_common::{
    Column, DFSchema, DataFusionError, Result, ScalarValue, TableReference,
    config::ConfigOptions,
    tree_node::{Transformed, TransformedResult, TreeNode},
};
use datafusion_expr::{
    AggregateUDF, Expr, ExprSchemable, HigherOrderUDF, Operator, ScalarUDF, TableSource, WindowUDF, cast,
    execution_props::ExecutionProps,
    physical_planning_context::PhysicalPlanningContext,
    planner::{ContextProvider, ExprPlanner},
    simplify::SimplifyContext,
};
use datafusion_functions::{
    core::planner::CoreFunctionPlanner, datetime::planner::DatetimeFunctionPlanner,
    unicode::planner::UnicodeFunctionPlanner,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr, expressions::BinaryExpr};
use datafusion_sql::{
    planner::{ParserOptions, PlannerContext, SqlToRel},
    sqlparser::ast::{Expr as Tree, Spanned},
};
use thalweg_record::PAYLOAD;

use crate::{
    Kind,
    coerce::Rules,
    error::{ExpressionError, range, words},
    functions,
    isolate::isolated,
    join::join_chains,
    names::{self, Found},
    payload_search::PAYLOAD_BYTES,
    syntax, walk,
};

/// The properties of a column that an expression depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnType {
    pub(crate) data_type: DataType,
    /// True if the column is text that holds JSON.
    pub(crate) json: bool,
    /// True if the column is a field, not `payload` or a `meta` column.
    pub(crate) field: bool,
}

/// The use of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Value,
    Condition,
}

/// Returns types that columns may have.
pub(crate) fn samples() -> impl Iterator<Item = ColumnType> {
    let plain = GUESSES.into_iter().filter(|data_type| *data_type != DataType::Null);
    let plain = plain.map(|data_type| ColumnType { data_type, json: false, field: true });
    plain.chain([ColumnType { data_type: DataType::Utf8View, json: true, field: true }])
}

/// An expression compiled for certain types.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) physical: Arc<dyn PhysicalExpr>,
    /// The columns that the plan reads, in order. [`PAYLOAD_BYTES`] is the payload without conversion to
    /// text.
    pub(crate) schema: SchemaRef,
    pub(crate) data_type: DataType,
    /// True if the values are JSON text.
    pub(crate) json: bool,
}

impl Plan {
    /// Returns the kind of the values.
    pub(crate) fn kind(&self) -> Kind {
        if self.json { Kind::Json } else { Kind::Plain }
    }
}

/// Compiles an expression for the types in `columns`, which are keyed by the names it may refer to.
pub(crate) fn plan(
    sql: &str,
    columns: &HashMap<&str, ColumnType>,
    purpose: Purpose,
) -> Result<Plan, ExpressionError> {
    isolated(|| {
        let tree = syntax::parse(sql)?;
        plan_tree(&tree, columns, purpose).map_err(|error| {
            let culprit = culprit(&tree, columns).unwrap_or_else(|| tree.clone());
            ExpressionError::new(format!("`{}` cannot be evaluated: {}.", shortened(&culprit), words(&error)))
                .at(range(sql, culprit.span()))
        })
    })
}

fn shortened(tree: &Tree) -> String {
    const LONGEST: usize = 80;
    let text = tree.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// The most parts of an expression that are tried to locate an error. Each part is planned with all its
/// children, which takes too long for a large expression.
const SUSPECTS: usize = 100;

/// Returns the smallest part that cannot be planned by itself: the error points at it.
fn culprit(tree: &Tree, columns: &HashMap<&str, ColumnType>) -> Option<Tree> {
    fn smallest(part: &mut Tree, columns: &HashMap<&str, ColumnType>, left: &mut usize) -> Option<Tree> {
        for part in walk::parts(part).into_iter().flatten() {
            let found = smallest(part, columns, left);
            if found.is_some() {
                return found;
            }
        }
        *left = left.checked_sub(1)?;
        plan_tree(part, columns, Purpose::Value).is_err().then(|| part.clone())
    }
    smallest(&mut tree.clone(), columns, &mut { SUSPECTS })
}

/// The types to try for a missing column, in order.
const GUESSES: [DataType; 6] = [
    DataType::Null,
    DataType::Utf8View,
    DataType::Int64,
    DataType::Float64,
    DataType::Boolean,
    DataType::Timestamp(TimeUnit::Microsecond, None),
];

fn plan_tree(tree: &Tree, columns: &HashMap<&str, ColumnType>, purpose: Purpose) -> Result<Plan> {
    let mut tree = tree.clone();
    let missing = names::resolve(&mut tree, &|name| match columns.get(name) {
        Some(column) if column.json => Found::JsonColumn,
        Some(_) => Found::Column,
        None => Found::Nothing,
    });
    let guesses = if missing.is_empty() { &GUESSES[..1] } else { &GUESSES[..] };
    let (mut planned, mut first) = (None, None);
    for guess in guesses {
        match plan_resolved(tree.clone(), columns, &missing, guess, purpose) {
            Ok(plan) if missing.is_empty() || takes_null(&plan) => return Ok(plan),
            Ok(plan) => planned = planned.or(Some(plan)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    // If no type works, evaluation fails for every message with the reason.
    match (planned, first) {
        (Some(plan), _) => Ok(plan),
        (None, Some(error)) => Err(error),
        (None, None) => Err(DataFusionError::Plan("it has no type".to_owned())),
    }
}

/// True if the plan works on a message whose columns are all NULL. Some functions detect an unsupported
/// argument type only during evaluation.
fn takes_null(plan: &Plan) -> bool {
    let nulls = plan.schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(plan.schema.clone(), nulls, &options)
        .is_ok_and(|message| plan.physical.evaluate(&message).is_ok())
}

fn plan_resolved(
    tree: Tree,
    columns: &HashMap<&str, ColumnType>,
    missing: &[String],
    missing_type: &DataType,
    purpose: Purpose,
) -> Result<Plan> {
    let mut fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type.clone(), true)).collect();
    fields.extend(missing.iter().map(|name| Field::new(name, missing_type.clone(), true)));
    fields.push(Field::new(PAYLOAD_BYTES, DataType::BinaryView, true));
    let schema = DFSchema::from_unqualified_fields(fields.into(), HashMap::new())?;

    let planner =
        SqlToRel::new_with_options(&*FUNCTIONS, ParserOptions::new().with_enable_ident_normalization(false));
    let expr = planner.sql_to_expr(tree, &schema, &mut PlannerContext::new())?;
    let null = ScalarValue::try_from(missing_type)?;
    let expr = expr
        .transform_up(|expr| match &expr {
            Expr::Column(column) if missing.contains(&column.name) => {
                Ok(Transformed::yes(Expr::Literal(null.clone(), None)))
            }
            _ => Ok(Transformed::no(expr)),
        })
        .data()?;
    let rules = Rules {
        schema: &schema,
        json: &|name| columns.get(name).is_some_and(|column| column.json),
        payload: columns.get(PAYLOAD).is_some_and(|column| !column.field),
        condition: purpose == Purpose::Condition,
    };
    let (expr, json) = rules.apply(expr)?;

    let schema = Arc::new(schema);
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_schema(schema.clone()).build());
    let expr = simplifier.coerce(expr, &schema)?;
    let data_type = expr.get_type(schema.as_ref())?;
    let (expr, data_type) = match (purpose, field_type(&data_type)?) {
        (Purpose::Value, Some(wanted)) => (cast(expr, wanted.clone()), wanted),
        _ => (expr, data_type),
    };
    let expr = simplifier.simplify(join_chains(expr, &schema)?)?;

    let used: HashSet<String> =
        expr.column_refs().into_iter().map(|column: &Column| column.name.clone()).collect();
    let mut used: Vec<&Arc<Field>> =
        schema.fields().iter().filter(|field| used.contains(field.name())).collect();
    used.sort_by_key(|field| field.name());
    let schema: Fields = used.into_iter().cloned().collect();
    let schema = Arc::new(Schema::new(schema));
    let physical = create_physical_expr(
        &expr,
        &DFSchema::try_from(schema.clone())?,
        &ExecutionProps::new(),
        &PhysicalPlanningContext::default(),
    )?;
    Ok(Plan { physical: checked(physical)?, schema, data_type, json })
}

/// Makes integer arithmetic fail on overflow instead of wrapping around.
fn checked(physical: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    physical
        .transform_up(|expr| match expr.downcast_ref::<BinaryExpr>() {
            Some(binary) if matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) => {
                Ok(Transformed::yes(
                    Arc::new(binary.clone().with_fail_on_overflow(true)) as Arc<dyn PhysicalExpr>
                ))
            }
            _ => Ok(Transformed::no(expr)),
        })
        .data()
}

/// Returns the field type for values of this type; `None` if it already is a field type.
fn field_type(data_type: &DataType) -> Result<Option<DataType>> {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Duration,
        FixedSizeBinary, FixedSizeList, Float16, Float32, Float64, Int8, Int16, Int32, Int64, Interval,
        LargeBinary, LargeList, LargeListView, LargeUtf8, List, ListView, Null, Time32, Time64, Timestamp,
        UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    Ok(match data_type {
        Int64 | Float64 | Boolean | Utf8View => None,
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 | UInt64 => Some(Int64),
        Float16 | Float32 | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => Some(Float64),
        Utf8 | LargeUtf8 | Null | Date32 | Date64 | Time32(_) | Time64(_) | Duration(_) | Interval(_)
        | Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => Some(Utf8View),
        Timestamp(TimeUnit::Microsecond, Some(zone)) if **zone == *"UTC" => None,
        Timestamp(..) => Some(Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        List(_) | LargeList(_) | FixedSizeList(..) | ListView(_) | LargeListView(_) => {
            return Err(DataFusionError::Plan("it returns a list, which a field cannot hold".to_owned()));
        }
        _ => return Err(DataFusionError::Plan("it returns what a field cannot hold".to_owned())),
    })
}

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| Functions {
    options: ConfigOptions::default(),
    planners: vec![
        Arc::new(CoreFunctionPlanner {}),
        Arc::new(DatetimeFunctionPlanner),
        Arc::new(UnicodeFunctionPlanner),
    ],
});

/// The context of DataFusion's planner: functions, but no tables.
struct Functions {
    options: ConfigOptions,
    planners: Vec<Arc<dyn ExprPlanner>>,
}

impl ContextProvider for Functions {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        Err(DataFusionError::Plan(format!("there is no table `{name}`")))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        functions::find(name).cloned()
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        functions::names()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
