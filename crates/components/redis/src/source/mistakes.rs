//! The mistakes in the options of the source that its schema cannot express.

use thalweg_codec::framing::check_limit;
use thalweg_engine::Mistake;
use thalweg_net::net::defaults;

use super::messages::{Field, Kind};
use super::{RedisSource, Side, Start, payload};

impl RedisSource {
    pub(super) fn mistake_of_input(&self) -> Option<Mistake> {
        let has_channels = !self.channels.is_empty() || !self.pattern.is_empty();
        let inputs = [self.stream.is_some(), self.list.is_some(), has_channels];
        if inputs.into_iter().filter(|is_given| *is_given).count() != 1 {
            let mistake = Mistake::new("stream", "The source reads a stream, a list or channels.");
            return Some(mistake.help("Give one of `stream`, `list`, and `channels` or `pattern`."));
        }
        let (option, message) = match self.kind() {
            Kind::Stream if self.group.is_none() => ("group", "A stream is read by a group."),
            Kind::List | Kind::Channels if self.group.is_some() => ("group", "Only a stream has groups."),
            Kind::Stream | Kind::Channels if self.processing_list.is_some() => {
                ("processing_list", "Only elements of a list are moved.")
            }
            Kind::Stream | Kind::Channels if self.take_from != Side::default() => {
                ("take_from", "Only a list has two sides.")
            }
            Kind::List | Kind::Channels if self.start != Start::default() => {
                ("start", "Only a group of a stream has a beginning.")
            }
            Kind::List if self.processing_list.is_some() && self.processing_list == self.list => {
                ("processing_list", "The elements on their way are in a list of their own.")
            }
            _ => return None,
        };
        Some(Mistake::new(option, message).help("For example `{ stream: orders, group: archive }`."))
    }

    /// Returns the mistake of a name that is empty.
    pub(super) fn mistake_of_names(&self) -> Option<Mistake> {
        let is_empty = |name: &Option<String>| name.as_ref().is_some_and(String::is_empty);
        let known = [
            ("stream", is_empty(&self.stream)),
            ("group", is_empty(&self.group)),
            ("consumer", is_empty(&self.consumer)),
            ("list", is_empty(&self.list)),
            ("processing_list", is_empty(&self.processing_list)),
            ("channels", self.channels.iter().any(String::is_empty)),
            ("pattern", self.pattern.iter().any(String::is_empty)),
        ];
        let (option, _) = known.into_iter().find(|(_, is_empty)| *is_empty)?;
        Some(Mistake::new(option, format!("`{option}` is empty.")).help("Give a name."))
    }

    /// Returns the mistake of an option that the kind of input does not have.
    pub(super) fn mistake_of_kind(&self) -> Option<Mistake> {
        let kind = self.kind();
        let (option, message) = match kind {
            Kind::List | Kind::Channels if self.payload_field != payload() => {
                ("payload_field", "Only an entry of a stream has fields.")
            }
            Kind::List | Kind::Channels if self.consumer_timeout != defaults::one_minute() => {
                ("consumer_timeout", "Only a group of a stream gives entries of one consumer to another.")
            }
            Kind::Channels if self.consumer.is_some() => {
                ("consumer", "Each subscriber of a channel gets all messages: they have no names.")
            }
            Kind::Channels if self.retry_delay != defaults::one_second() => {
                ("retry_delay", "Messages of channels cannot be read again.")
            }
            _ => return None,
        };
        Some(Mistake::new(option, message).help("Leave it out, or read a stream with a group."))
    }

    pub(super) fn mistakes_of_sizes(&self) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = check_limit(self.max_message_bytes).into_iter().collect();
        if self.fetch_size.is_some_and(|size| size.bytes() == 0) {
            let mistake = Mistake::new("fetch_size", "The source cannot ask for messages of 0 bytes.");
            mistakes.push(mistake.help("For example `1MiB`."));
        }
        if self.retry_delay.is_zero() {
            let mistake = Mistake::new("retry_delay", "The source would read a message again without end.");
            mistakes.push(mistake.help("The default is `1s`."));
        }
        mistakes
    }

    pub(super) fn mistake_of_fields(&self) -> Option<Mistake> {
        let wrong = self.fields.iter().find(|name| Field::new(name, self.kind()).is_none())?;
        let mistake = Mistake::new("fields", format!("A message has no `{wrong}`."));
        Some(mistake.help(match self.kind() {
            Kind::Stream => "There are `id`, `time`, `stream`, and fields such as `field.name`.",
            Kind::List => "There is `list`.",
            Kind::Channels => "There are `channel` and `pattern`.",
        }))
    }
}
