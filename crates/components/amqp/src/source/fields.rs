//! The parts of a message that become fields.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, StringViewArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field as Column, TimeUnit};

use super::messages::Incoming;
use crate::wire::{Properties, Property};

/// A part of a message that becomes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Queue,
    Exchange,
    RoutingKey,
    Redelivered,
    Text(Property),
    Number(Property),
    Timestamp,
    Header(String),
}

impl Field {
    /// Returns the part with this name, if there is one.
    pub(super) fn new(name: &str) -> Option<Self> {
        Some(match name {
            "queue" => Self::Queue,
            "exchange" => Self::Exchange,
            "routing_key" => Self::RoutingKey,
            "redelivered" => Self::Redelivered,
            "content_type" => Self::Text(Property::ContentType),
            "content_encoding" => Self::Text(Property::ContentEncoding),
            "delivery_mode" => Self::Number(Property::DeliveryMode),
            "priority" => Self::Number(Property::Priority),
            "correlation_id" => Self::Text(Property::CorrelationId),
            "reply_to" => Self::Text(Property::ReplyTo),
            "expiration" => Self::Text(Property::Expiration),
            "message_id" => Self::Text(Property::MessageId),
            "timestamp" => Self::Timestamp,
            "type" => Self::Text(Property::Type),
            "user_id" => Self::Text(Property::UserId),
            "app_id" => Self::Text(Property::AppId),
            other => {
                let name = other.strip_prefix("header.").filter(|name| !name.is_empty())?;
                Self::Header(name.to_owned())
            }
        })
    }

    /// Returns the description of the column of this part.
    pub(super) fn described(&self, name: &str) -> Column {
        let kind = match self {
            Self::Queue | Self::Exchange | Self::RoutingKey | Self::Text(_) | Self::Header(_) => {
                DataType::Utf8View
            }
            Self::Number(_) => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Redelivered => DataType::Boolean,
        };
        Column::new(name, kind, true)
    }

    /// Returns this part of some messages as a column. `queues` are the names of the queues.
    pub(super) fn column(&self, messages: &[Incoming], queues: &[String]) -> ArrayRef {
        let all = messages.iter();
        match self {
            Self::Queue => {
                let names = all.map(|incoming| queues.get(incoming.queue));
                Arc::new(names.collect::<StringViewArray>())
            }
            Self::Exchange => {
                Arc::new(all.map(|incoming| Some(&incoming.message.exchange)).collect::<StringViewArray>())
            }
            Self::RoutingKey => {
                Arc::new(all.map(|incoming| Some(&incoming.message.routing_key)).collect::<StringViewArray>())
            }
            Self::Redelivered => {
                let flags = all.map(|incoming| Some(incoming.message.is_redelivered));
                Arc::new(flags.collect::<BooleanArray>())
            }
            Self::Text(property) => {
                let texts = all.map(|incoming| properties(incoming).text(*property));
                Arc::new(texts.collect::<StringViewArray>())
            }
            Self::Number(property) => {
                let numbers = all.map(|incoming| number(incoming, *property));
                Arc::new(numbers.collect::<Int64Array>())
            }
            Self::Timestamp => {
                let seconds = all.map(|incoming| number(incoming, Property::Timestamp));
                let times = seconds.map(|seconds| seconds?.checked_mul(1_000_000));
                Arc::new(times.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
            }
            Self::Header(name) => {
                let texts = all.map(|incoming| properties(incoming).header(name));
                Arc::new(texts.collect::<StringViewArray>())
            }
        }
    }
}

fn properties(incoming: &Incoming) -> Properties<'_> {
    Properties::of(&incoming.message.properties)
}

fn number(incoming: &Incoming, property: Property) -> Option<i64> {
    properties(incoming).number(property).and_then(|number| i64::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::messages::tests::incoming;
    use crate::wire::{self, Argument};
    use thalweg_stream::whole;

    #[test]
    fn names_of_fields_are_parts_and_headers() {
        assert_eq!(Field::new("routing_key"), Some(Field::RoutingKey));
        assert_eq!(Field::new("header.unit"), Some(Field::Header("unit".to_owned())));
        for wrong in ["", "header.", "topic", "Exchange"] {
            assert_eq!(Field::new(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_of_a_message_are_columns() {
        let flags = [Property::ContentType, Property::Headers, Property::Priority, Property::Timestamp];
        let mut properties = flags.iter().map(|flag| flag.flag()).sum::<u16>().to_be_bytes().to_vec();
        wire::short_text(b"text/plain", &mut properties);
        let headers = [("unit", Argument::Text("K".to_owned())), ("count", Argument::Number(3))];
        wire::long_text(&wire::table(headers), &mut properties);
        properties.push(4);
        properties.extend_from_slice(&1_600_000_000_u64.to_be_bytes());
        let messages = [incoming(&properties, 1), incoming(&[], 1)];
        let names = [
            "queue",
            "exchange",
            "routing_key",
            "redelivered",
            "content_type",
            "priority",
            "timestamp",
            "header.unit",
            "header.count",
        ];
        let queues = ["orders".to_owned()];
        let columns = names.map(|name| {
            let field = Field::new(name).unwrap();
            (field.described(name), field.column(&messages, &queues))
        });
        let columns = whole::fields(columns.into_iter(), 2).unwrap().unwrap();
        let rows = thalweg_engine::testing::rows(&columns);
        assert_eq!(rows[0]["queue"], "orders");
        assert_eq!((&rows[0]["exchange"], &rows[0]["routing_key"]), (&"x".into(), &"a.b".into()));
        assert_eq!((&rows[0]["redelivered"], &rows[0]["priority"]), (&true.into(), &4.into()));
        assert_eq!((&rows[0]["header.unit"], &rows[0]["header.count"]), (&"K".into(), &"3".into()));
        assert_eq!(rows[0]["content_type"], "text/plain");
        assert_eq!(rows[0]["timestamp"], 1_600_000_000_000_000_i64);
        assert_eq!((rows[1].get("priority"), rows[1].get("timestamp")), (None, None));
    }
}
