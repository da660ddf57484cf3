//! WebSocket, for all components that speak it: messages as frames, and the connection of a client.
//!
//! A source and a sink connect in the same way, so their options are one struct to flatten. A connection is
//! read while it is written to, since a server that is not heard may stop listening.

mod client;
mod frames;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use client::{ClientOptions, Connect, Socket};
pub(crate) use frames::{Kind, frames};
