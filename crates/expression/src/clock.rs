//! `now()` and similar functions.
//!
//! DataFusion replaces these functions by constants when it plans a query. Here an expression is planned once
//! and evaluated for days. These functions therefore read the clock when a batch is evaluated, and all
//! messages of the batch see the same time.

use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, Utc};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The part of the current time that a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ClockPart {
    Instant,
    Date,
    TimeOfDay,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Present {
    name: &'static str,
    aliases: Vec<String>,
    part: ClockPart,
    signature: Signature,
}

/// Returns the functions of this file.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let make = |name, aliases: &[&str], part| {
        ScalarUDF::from(Present {
            name,
            aliases: aliases.iter().map(ToString::to_string).collect(),
            part,
            signature: Signature::nullary(Volatility::Volatile),
        })
    };
    vec![
        make("now", &["current_timestamp"], ClockPart::Instant),
        make("current_date", &["today"], ClockPart::Date),
        make("current_time", &[], ClockPart::TimeOfDay),
    ]
}

impl Present {
    fn at(&self, now: DateTime<Utc>) -> ScalarValue {
        const DAY_US: i64 = 86_400_000_000;
        let us = now.timestamp_micros();
        match self.part {
            ClockPart::Instant => ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())),
            ClockPart::Date => ScalarValue::Date32(i32::try_from(us.div_euclid(DAY_US)).ok()),
            ClockPart::TimeOfDay => ScalarValue::Time64Microsecond(Some(us.rem_euclid(DAY_US))),
        }
    }
}

impl ScalarUDFImpl for Present {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.part {
            ClockPart::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ClockPart::Date => DataType::Date32,
            ClockPart::TimeOfDay => DataType::Time64(TimeUnit::Microsecond),
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.at(Utc::now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_1970_the_date_and_the_time_of_day_still_fit_together() {
        let minute_before = DateTime::from_timestamp(-60, 0).unwrap();
        let of = |part| {
            Present { name: "", aliases: vec![], part, signature: Signature::nullary(Volatility::Volatile) }
                .at(minute_before)
        };
        assert_eq!(of(ClockPart::Date), ScalarValue::Date32(Some(-1)));
        assert_eq!(of(ClockPart::TimeOfDay), ScalarValue::Time64Microsecond(Some(86_340_000_000)));
    }
}
