//! The connections of a sink: one to a server, and those to the nodes of a cluster that it named.
//!
//! A server that does not have a key names the node that has it. Nothing else is known of a cluster, and
//! nothing is asked about it: a sink that writes to one node for an hour needs no map of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_engine::Error;

use crate::connection::{Connection, Servers};

/// The number of nodes to which connections are kept.
const MOST: usize = 64;

/// The connections of a sink.
pub(super) struct Nodes {
    servers: Servers,
    first: Option<Connection>,
    others: BTreeMap<Arc<str>, Connection>,
    /// The nodes that have slots, as far as servers named them.
    slots: BTreeMap<u16, Arc<str>>,
}

impl Nodes {
    pub(super) fn new(servers: Servers) -> Self {
        Self { servers, first: None, others: BTreeMap::new(), slots: BTreeMap::new() }
    }

    /// Returns the node that has a key. `None` if no server named it.
    pub(super) fn of(&self, key: &[u8]) -> Option<Arc<str>> {
        match self.slots.is_empty() {
            true => None,
            false => self.slots.get(&slot(key)).cloned(),
        }
    }

    /// Notes that a node has a slot.
    pub(super) fn moved(&mut self, slot: u16, at: &str) {
        let known = self.slots.values().find(|known| ***known == *at).cloned();
        self.slots.insert(slot, known.unwrap_or_else(|| at.into()));
    }

    /// Connects to another first server from now on, if the error of this one says that it is a replica.
    pub(super) fn follow(&mut self, error: &str) {
        self.servers.follow(error);
    }

    /// Returns the connection to a node, or to the first server that answers.
    ///
    /// # Errors
    /// If there is none.
    pub(super) async fn connection(&mut self, at: Option<&Arc<str>>) -> Result<&mut Connection, Error> {
        // A connection that the server has closed is noticed before a command may be lost.
        let known = match at {
            None => self.first.take(),
            Some(at) => self.others.remove(at),
        };
        let usable = match known {
            Some(mut known) => known.is_usable().await.then_some(known),
            None => None,
        };
        match (at, usable) {
            (None, Some(usable)) => Ok(self.first.insert(usable)),
            (None, None) => {
                let opened = self.servers.connect().await?;
                Ok(self.first.insert(opened))
            }
            (Some(at), usable) => {
                if self.others.len() >= MOST {
                    self.others.clear();
                }
                let connection = match usable {
                    Some(usable) => usable,
                    None => self.servers.connect_to(at).await?,
                };
                Ok(self.others.entry(at.clone()).or_insert(connection))
            }
        }
    }

    /// Drops a connection. A node that fails may have lost its slots to another one.
    pub(super) fn lost(&mut self, at: Option<&Arc<str>>) {
        match at {
            None => self.first = None,
            Some(at) => {
                self.others.remove(at);
                self.slots.retain(|_, known| *known != *at);
            }
        }
    }

    /// Drops all connections.
    pub(super) fn close(&mut self) {
        self.first = None;
        self.others.clear();
    }
}

/// Returns the slot of a key in a cluster: that of the part in braces, if there is one.
fn slot(key: &[u8]) -> u16 {
    let inner = || {
        let rest = key.get(key.iter().position(|byte| *byte == b'{')? + 1..)?;
        let tag = rest.get(..rest.iter().position(|byte| *byte == b'}')?)?;
        (!tag.is_empty()).then_some(tag)
    };
    crc16(inner().unwrap_or(key)) % 16384
}

/// The checksum CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_that_servers_compute() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, same) in
            [("{user1000}.following", "user1000"), ("a{b}c{d}", "b"), ("foo{}{bar}", "foo{}{bar}")]
        {
            assert_eq!(slot(key.as_bytes()), crc16(same.as_bytes()) % 16384, "{key}");
        }
        assert_eq!(slot(b"foo"), 12182);
    }
}
