//! Places in checkpoints: a number, or an object with the id of the topic.

use serde_json::{Value, json};

use crate::client::Place;

impl Place {
    /// Returns the place that a checkpoint has.
    pub(super) fn of(saved: &Value) -> Option<Self> {
        let topic = saved.get("topic_id").and_then(Value::as_str).map(Into::into);
        let offset = saved.get("offset").unwrap_or(saved).as_i64()?;
        Some(Self { offset, topic })
    }

    /// Returns the place as a checkpoint has it.
    pub(super) fn value(&self) -> Value {
        match &self.topic {
            Some(id) => json!({ "offset": self.offset, "topic_id": &**id }),
            None => self.offset.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_place_is_read_with_and_without_the_id_of_its_topic() {
        for (place, saved) in [
            (Place { offset: 5, topic: None }, json!(5)),
            (Place { offset: 5, topic: Some("0a".into()) }, json!({ "offset": 5, "topic_id": "0a" })),
        ] {
            assert_eq!(place.value(), saved);
            assert_eq!(Place::of(&saved), Some(place));
        }
        assert_eq!(Place::of(&json!({ "topic_id": "0a" })), None);
    }
}
