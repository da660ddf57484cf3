//! SQL expressions over the columns of a batch.
//!
//! A user writes `status >= 500 AND path NOT LIKE '/health%'`; this crate says for each message of a batch
//! whether that is so. An [`Expression`] is the text, parsed and known to be sound. An [`Evaluator`] holds it
//! compiled for the types of the columns it refers to, and evaluates a batch at a time with DataFusion's
//! kernels. The types are not known before the first batch, and may change with any batch, since a field has
//! the type that its parser found in it: so it is compiled when new types are met, and kept.
//!
//! # What differs from a database
//!
//! A table has a schema; messages have whatever was found in them. Therefore:
//!
//! - **A column that a batch lacks is NULL.** It is not a mistake: the next batch may have it.
//! - **Names are case-sensitive as written**, quoted or not: `requestId` is not `requestid`. Names of
//!   functions are not case-sensitive. Double quotes make a name, single quotes a text, so that
//!   `level = "error"` compares two columns, of which the second is probably missing (NULL) everywhere:
//!   write `level = 'error'`.
//! - **A dotted name** `request.status` is the column of that name if there is one. Otherwise it is looked
//!   up in the
//!   column `request`, if that holds JSON; `request.items[0].id` and `request['a key']` likewise.
//! - **Text meets a number** as a number: `status >= 500` on a column of text reads each text as a number,
//!   and
//!   gives NULL where it is none. (The reading is a 64-bit float, or an integer where it meets an integer
//!   literal beyond 2^53.) The same goes for truth values and times. Only a text literal that is not a
//!   number is compared as text, for equality: `status <> 'unknown'`.
//! - **A JSON column** (an irregular or nested value kept as JSON text) is used as what it holds: its text
//!   without quotes where text is expected, its number beside numbers, its truth value in a condition. JSON
//!   `null` is NULL.
//! - **A message fails alone.** A division by zero, a failed `CAST` or an overflow makes that message's
//!   value NULL
//!   and gives the reason; the rest of the batch is not affected.
//! - **`now()`** is the time at which the batch is evaluated.
//!
//! There are no aggregates, windows, subqueries or parameters: an expression looks at one message.
//!
//! # How it is laid out
//!
//! `syntax` turns text to a syntax tree and refuses what cannot be meant; `names` finds the columns; `plan`
//! turns the tree to something executable for given types, with the rules above in `coerce`; `evaluate`
//! runs it. Conditions on the text of the payload itself are the commonest of all and need not make text of
//! it: they go to `payload_search`.
//!
//! This crate knows of batches; it knows nothing of configuration files, components or the engine.

mod clock;
mod coerce;
mod error;
mod evaluate;
mod expression;
mod functions;
mod isolate;
mod json;
mod names;
mod payload_search;
mod plan;
mod syntax;
mod walk;

pub use error::ExpressionError;
pub use evaluate::{Condition, Evaluated, Evaluator};
pub use expression::{Expression, check};
pub use functions::{FunctionInfo, functions};
