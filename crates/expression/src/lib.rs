//! SQL expressions over the columns of a batch.
//!
//! For example, a user writes the condition `status >= 500 AND path NOT LIKE '/health%'`, and this crate
//! evaluates it for each message of a batch. An [`Expression`] is the text, parsed and validated. An
//! [`Evaluator`] compiles it for the types of its columns and evaluates one batch at a time with DataFusion's
//! kernels. Column types are unknown before the first batch and may change with any batch, since a field has
//! the type that its parser found. The expression is therefore compiled when new types appear, and the result
//! is cached.
//!
//! # Differences from a database
//!
//! A table has a schema; messages have the fields that were found in them. Therefore:
//!
//! - **A column that a batch lacks is NULL.** It is not an error: the next batch may have it.
//! - **Names are case-sensitive as written**, quoted or not: `requestId` is not `requestid`. Function names
//!   are not case-sensitive. Double quotes make a name, single quotes a text. Hence `level = "error"`
//!   compares two columns, of which the second is probably missing (NULL) everywhere: write `level =
//!   'error'`.
//! - **A dotted name** such as `request.status` is the column of that name, if it exists. Otherwise `status`
//!   is looked up in the column `request`, if that holds JSON. `request.items[0].id` and `request['a key']`
//!   work likewise.
//! - **A value keeps its own type.** An expression is evaluated for each message with the types of its own
//!   values, even if the column holds others too: beside `1.5` or `"a"`, `1` is an integer. The result for a
//!   message does not depend on the other messages of its batch.
//! - **Text beside a number** is read as a number: `status >= 500` on a text column parses each text. In a
//!   comparison, an unparsable text is NULL. In arithmetic, as in `size + 1`, it is an error of that message,
//!   except in a condition. Texts are parsed as 64-bit floats, or as integers beside an integer literal
//!   beyond 2^53. The same applies to booleans and times. Only a text literal that is not a number is
//!   compared as text, for equality: `status <> 'unknown'`.
//! - **A JSON column** (irregular or nested values kept as JSON text) is used as the values it holds: a JSON
//!   string is text, a JSON number is a number, and an object or array is JSON text. JSON `null` is NULL.
//! - **A message fails alone.** A division by zero, a failed `CAST` or an overflow makes that message's value
//!   NULL and reports the reason. The rest of the batch is not affected.
//! - **A text has at most 16 MiB**, or an eighth of the memory. `||`, `concat`, `concat_ws`, `encode`,
//!   `lpad`, `overlay`, `regexp_replace`, `repeat`, `replace` and `rpad` fail for a message whose result
//!   would be larger.
//! - **`now()`** is the time at which the batch is evaluated.
//!
//! There are no aggregates, windows, subqueries or parameters: an expression looks at one message.
//!
//! # Layout
//!
//! `syntax` parses text into a syntax tree and rejects unsupported syntax. `names` resolves the columns.
//! `plan` compiles the tree for given types, with the rules above in `coerce`. `evaluate` runs the plan.
//! Conditions on the payload's text are the most common, and do not need it as a text column:
//! `payload_search` evaluates them on the bytes.
//!
//! This crate knows batches. It must not know configuration files, components or the engine.
//!
//! See docs/decisions/030-expressions-are-datafusions.md.

mod bounded;
mod catalogue;
mod clock;
mod coerce;
mod elsewhere;
mod error;
mod evaluate;
mod expression;
mod functions;
mod isolate;
mod join;
mod json;
mod names;
mod payload_search;
mod plan;
mod slips;
mod syntax;
mod walk;

pub use catalogue::{FunctionInfo, Group};
pub use error::ExpressionError;
pub use evaluate::{Condition, Evaluated, Evaluator, Kind};
pub use expression::{Expression, check};
pub use functions::{aliases, functions};
