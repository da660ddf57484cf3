//! Writes points in time as text.

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, FixedOffset, Utc};

/// Writes times in one format.
#[derive(Debug, Clone)]
pub struct TimeText {
    items: Vec<Item<'static>>,
    /// The time zone. `None` for UTC.
    zone: Option<FixedOffset>,
    /// True if the format shows fractions of a second. If not, all times within a second have the same text.
    fractions: bool,
    /// The last time that was written. Its text is kept, because adjacent messages mostly have the same time.
    last: Option<i64>,
    text: String,
}

impl TimeText {
    /// Creates a writer from a format in the notation of `strftime`. `None` if the format is wrong.
    pub fn new(format: &str) -> Option<Self> {
        let items = StrftimeItems::new(format).parse_to_owned().ok()?;
        let fractions = format.contains(['f', '+']);
        Some(Self { items, zone: None, fractions, last: None, text: String::new() })
    }

    /// Sets the time zone, in seconds east of Greenwich. The default is UTC.
    pub fn in_zone(self, seconds: i64) -> Self {
        let zone = i32::try_from(seconds).ok().and_then(FixedOffset::east_opt);
        Self { zone: zone.filter(|_| seconds != 0), ..self }
    }

    /// Returns the text of a time.
    pub fn of(&mut self, time: DateTime<Utc>) -> &str {
        // A time whose nanoseconds do not fit 64 bits is formatted each time.
        let key = if self.fractions { time.timestamp_nanos_opt() } else { Some(time.timestamp()) };
        if key.is_none() || key != self.last {
            use std::fmt::Write as _;
            self.text.clear();
            let items = self.items.iter();
            // A value that cannot be written, such as a year beyond those of the calendar, is left out.
            let _ = match &self.zone {
                Some(zone) => write!(self.text, "{}", time.with_timezone(zone).format_with_items(items)),
                None => write!(self.text, "{}", time.format_with_items(items)),
            };
            self.last = key;
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_its_zone() {
        let time = DateTime::from_timestamp(0, 0).unwrap();
        let text = |zone| TimeText::new("%H:%M %Z").unwrap().in_zone(zone).of(time).to_owned();
        assert_eq!([text(0), text(5_400), text(-3_600)], ["00:00 UTC", "01:30 +01:30", "23:00 -01:00"]);
        assert!(TimeText::new("%!").is_none());
    }
}
