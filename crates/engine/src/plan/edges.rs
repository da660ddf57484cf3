//! Where edges lead, by the names of components.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Destination, Operator, Plan, Segment, Target};
use thalweg_record::Output;

impl Plan {
    /// Returns the name of the component that a stage begins with.
    pub(crate) fn entrance(&self, stage: Destination) -> Arc<str> {
        match stage {
            Destination::Segment(number) => {
                let segment = &self.segments[number];
                segment.operators.first().map_or(&segment.name, |operator| &operator.node.name).clone()
            }
            Destination::Sink(number) => self.sinks[number].node.name.clone(),
            Destination::Failover(number) => self.failovers[number].name.clone(),
            Destination::DeadLetters => "dead letters".into(),
        }
    }

    /// Returns the names of the components that some stages begin with.
    pub(crate) fn entrances(&self, stages: &[Destination]) -> Vec<Arc<str>> {
        stages.iter().map(|stage| self.entrance(*stage)).collect()
    }

    /// Returns the name of the component that a target in a segment is, or begins with.
    pub(crate) fn entrance_of(&self, segment: &Segment, target: Target) -> Arc<str> {
        match target {
            Target::Operator(number) => segment.operators[number].node.name.clone(),
            Target::Stage(stage) => self.entrance(stage),
        }
    }

    /// Returns the plan for programs, without the options of components.
    pub(crate) fn described(&self) -> Value {
        let names = |stages: &[Destination]| named(self.entrances(stages));
        let sources = self.sources.iter().map(|source| {
            json!({
                "name": &*source.node.name,
                "kind": source.node.kind,
                "gives": source.node.config.gives().name(),
                "to": names(&source.main),
                "errors": names(&source.errors),
            })
        });
        let failovers = self.failovers.iter().map(|failover| {
            let ways = failover.ways.iter().map(|(name, to)| json!({ "name": &**name, "to": names(to) }));
            json!({ "name": &*failover.name, "ways": ways.collect::<Value>() })
        });
        let sinks = self.sinks.iter().map(
            |sink| json!({ "name": &*sink.node.name, "kind": sink.node.kind, "errors": names(&sink.errors) }),
        );
        json!({
            "sources": sources.collect::<Value>(),
            "segments": self.segments.iter().map(|segment| self.described_segment(segment)).collect::<Value>(),
            "failovers": failovers.collect::<Value>(),
            "sinks": sinks.collect::<Value>(),
            "memory": self.memory.bytes(),
            "cores": self.cores,
        })
    }

    fn described_segment(&self, segment: &Segment) -> Value {
        let operator = |operator: &Operator| {
            let labels = operator.node.config.outputs();
            let outputs = operator.outputs.iter().map(|(output, targets)| {
                let to = targets.iter().map(|target| self.entrance_of(segment, *target)).collect();
                (output_name(*output, &labels), named(to))
            });
            json!({
                "name": &*operator.node.name,
                "kind": operator.node.kind,
                "is_sink": operator.delivers,
                "outputs": outputs.collect::<Map<String, Value>>(),
            })
        };
        json!({
            "pipeline": &*segment.name,
            "takes": segment.takes.name(),
            "workers": segment.parallelism,
            "is_ordered": segment.ordered,
            "operators": segment.operators.iter().map(operator).collect::<Value>(),
        })
    }
}

/// Returns the name of an output: `main`, `errors`, or its label.
pub(crate) fn output_name(output: Output, labels: &[String]) -> String {
    match output {
        Output::Main => "main".to_owned(),
        Output::Errors => "errors".to_owned(),
        Output::Named(number) => labels.get(number).cloned().unwrap_or_else(|| number.to_string()),
    }
}

/// Returns names as a list in which each is once.
fn named(names: Vec<Arc<str>>) -> Value {
    let mut list: Vec<Value> = Vec::new();
    for name in names {
        let name = Value::from(&*name);
        if !list.contains(&name) {
            list.push(name);
        }
    }
    list.into()
}
