//! The `Display` of a plan.

use std::fmt;

use thalweg_config::{ByteSize, TimeSpan};

use super::{Destination, Plan};
use crate::component::{Cost, Flow, InFlight};
use thalweg_record::Output;

impl Plan {
    fn name_of(&self, destination: Destination) -> String {
        match destination {
            Destination::Segment(number) => format!("segment {}", number + 1),
            Destination::Sink(number) => self.sinks[number].node.name.to_string(),
            Destination::Failover(number) => self.failovers[number].name.to_string(),
            Destination::DeadLetters => "dead letters".to_owned(),
        }
    }

    fn names_of(&self, destinations: impl IntoIterator<Item = Destination>) -> String {
        let mut names: Vec<String> = Vec::new();
        for destination in destinations {
            let name = self.name_of(destination);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let batch = ByteSize(self.batch_bytes as u64);
        writeln!(f, "  {cores}, {} of memory, batches of about {batch}", self.memory)?;
        for source in &self.sources {
            let to = self.names_of(source.main.iter().copied());
            writeln!(f, "  source     {} ({}) → {to}", source.node.name, source.node.kind)?;
        }
        for (number, segment) in self.segments.iter().enumerate() {
            let workers = match (segment.parallelism, segment.is_fixed) {
                (1, false) => "1 worker".to_owned(),
                (workers, false) if segment.takes == Flow::Files && segment.cost < Cost::Waits => {
                    format!("{workers} workers")
                }
                (1, true) => "1 worker, as configured".to_owned(),
                (workers, false) => format!("adaptive 1 to {workers} workers"),
                (workers, true) => format!("{workers} workers, as configured"),
            };
            let order = match (segment.parallelism, segment.ordered) {
                (1, _) => "",
                (_, true) => ", in order",
                (_, false) => ", in any order",
            };
            let names: Vec<&str> = segment.operators.iter().map(|operator| &*operator.node.name).collect();
            let exits = segment.operators.iter().flat_map(|operator| operator.outputs.iter());
            let exits = exits.filter(|(output, _)| **output != Output::Errors);
            let exits = exits.flat_map(|(_, targets)| targets.iter()).filter_map(|target| target.stage());
            let to = self.names_of(exits);
            // Sinks of files are operators of the segment.
            let to = if to.is_empty() { String::new() } else { format!(" → {to}") };
            writeln!(f, "  segment {}  {workers}{order}{to}", number + 1)?;
            writeln!(f, "             {}", names.join(" · "))?;
        }
        for failover in &self.failovers {
            let ways = failover.ways.iter().map(|(name, stages)| {
                let stages = self.names_of(stages.iter().copied());
                if stages == **name { stages } else { format!("{name} ({stages})") }
            });
            let ways = ways.collect::<Vec<_>>().join(", else ");
            let patience = match failover.timeout {
                Some(timeout) => format!(", also after {} without capacity", TimeSpan(timeout)),
                None => String::new(),
            };
            writeln!(f, "  failover   {} → {ways}{patience}", failover.name)?;
        }
        for sink in &self.sinks {
            write!(f, "  sink       {} ({})", sink.node.name, sink.node.kind)?;
            match sink.node.config.in_flight() {
                InFlight::One => {}
                InFlight::Adaptive(most) => write!(f, ", adaptive 1 to {most} requests")?,
                InFlight::Fixed(most) => write!(f, ", {most} requests, as configured")?,
            }
            if let Some(memory) = sink.memory {
                write!(f, ", behind a buffer of {memory}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
