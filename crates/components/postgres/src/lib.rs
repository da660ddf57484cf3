//! The source and the sink `postgres`.
//!
//! Rows travel in the binary format of `COPY`, which [`decode`] turns into columns and [`encode`] makes of
//! them. [`connection`] opens connections, behind [`guard`], which bounds what a server can make us hold;
//! [`failure`] tells what an error of the server means. No other component lives here.
//!
//! See docs/decisions/092-postgres-by-copy.md.

mod connection;
mod decode;
mod encode;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod kind;
mod numeric;
mod options;
mod sql;

thalweg_engine::components! {
    source source::PostgresSource;
    sink sink::PostgresSink;
}
