//! The contract of every role of component, as suites that run against the program.
//!
//! A test of a component shows what its author thought of. The contract is what every component of a role
//! owes, whichever author wrote it: no acknowledged record is missing, none is torn, the order holds, and
//! repeats stay within the documented bound, wherever the process is interrupted.
//!
//! - [`records`] are numbered, and [`oracle`] compares those that arrived with those that were sent.
//! - [`program`] starts the program, interrupts it and measures it. [`servers`] are its peers, and [`amazon`]
//!   plays those services of which there is no server.
//! - [`feed`] and [`outlet`] describe components as the two ends of a pipeline: how input is made, how output
//!   is read, and what is promised. [`cases`] has one for every registered component.
//! - [`scenario`] runs a feed into an outlet through interruptions, and asks the oracle.
//! - [`suite`] has one suite for each role. [`transforms`] are tested in this process, because what has no
//!   side effect cannot be half done.
//! - [`table`] says which clauses hold for which component.
//!
//! The failpoints of the engine decide where the process is interrupted. Only random moments were rejected: a
//! window of a microsecond is hit once in a million kills. Fake components were rejected as well: this crate
//! knows components by their names in configurations, and runs the real ones.
//!
//! Code that the program needs must not live here.

pub mod amazon;
pub mod brokers;
pub mod cases;
pub mod disk;
pub mod feed;
pub mod matrix;
pub mod oracle;
pub mod outlet;
pub mod program;
pub mod read;
pub mod records;
pub mod scenario;
pub mod servers;
pub mod suite;
mod systems;
pub mod table;
pub mod transforms;
