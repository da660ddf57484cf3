//! Addresses, numbers and times as points in one order, in which networks and ranges are spans.

use std::net::IpAddr;
use std::path::Path;

use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch, cast::AsArray};
use arrow_schema::DataType;
use thalweg_codec::columns::shortened;
use thalweg_codec::keys::{bytes_of, bytes_of_column};
use thalweg_codec::timestamps::{TimeFormat, TimeParser};
use thalweg_record::Batch;

use super::on::Within;
use super::spans::Span;
use super::unusable::Unusable;

/// The values that points stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// IP addresses.
    Address,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Number,
    /// Points in time.
    Time,
}

/// The IPv4 addresses among those of IPv6: `::ffff:0.0.0.0` and those after it.
const MAPPED: u128 = 0xffff << 32;

/// Returns the point of an address. An IPv4 address is the same in both notations.
fn address(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => MAPPED | u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn whole(value: i64) -> u128 {
    (i128::from(value) - i128::from(i64::MIN)) as u128
}

/// Returns the point of a number. The order of the bits is that of the numbers.
fn number(value: f64) -> u128 {
    let bits = (value + 0.0).to_bits();
    u128::from(if bits >> 63 == 0 { bits | 1 << 63 } else { !bits })
}

/// The point of each message, or the reason for rejecting it. NULL is no point.
type Points = Vec<Result<Option<u128>, String>>;

/// Points without any reason.
fn known(points: impl Iterator<Item = Option<u128>>) -> Points {
    points.map(Ok).collect()
}

/// A number as it was written.
#[derive(Clone, Copy)]
enum Number {
    Whole(i64),
    Float(f64),
}

impl Kind {
    /// Returns the points of a field of messages.
    pub(super) fn of_messages(self, batch: &Batch, name: &str) -> Points {
        let column = batch.field(name).map(|(place, _)| batch.fields().column(place).clone());
        let column = column.or_else(|| batch.column(name));
        if let Some(points) = column.as_ref().and_then(|column| self.of_typed(column)) {
            return points;
        }
        let Some(texts) = bytes_of(batch, name) else { return vec![Ok(None); batch.rows()] };
        self.of_texts(&texts, name)
    }

    /// Returns the points of a column that has values of this kind.
    fn of_typed(self, column: &ArrayRef) -> Option<Points> {
        match self {
            Kind::Whole | Kind::Number => {
                if let Some(values) = column.as_primitive_opt::<Int64Type>() {
                    let value = |value: i64| self.number(Number::Whole(value));
                    return Some(known(values.iter().map(|found| value(found?))));
                }
                let values = column.as_primitive_opt::<Float64Type>()?;
                Some(known(values.iter().map(|value| self.number(Number::Float(value?)))))
            }
            Kind::Time => {
                let values = column.as_primitive_opt::<TimestampMicrosecondType>()?;
                Some(known(values.iter().map(|value| value.map(whole))))
            }
            Kind::Address => None,
        }
    }

    fn number(self, value: Number) -> Option<u128> {
        match (self, value) {
            (Kind::Number, Number::Whole(value)) => Some(number(value as f64)),
            (Kind::Number, Number::Float(value)) => (!value.is_nan()).then(|| number(value)),
            (_, Number::Whole(value)) => Some(whole(value)),
            // A number is between two whole numbers if the whole number below it is.
            (_, Number::Float(value)) => (!value.is_nan()).then(|| whole(value.floor() as i64)),
        }
    }

    fn of_texts(self, texts: &BinaryViewArray, name: &str) -> Points {
        let mut times = TimeParser::new(TimeFormat::Auto, 0);
        let mut point = |value: &[u8]| {
            let text = std::str::from_utf8(value).ok()?.trim_ascii();
            match self {
                Kind::Address => text.parse().ok().map(address),
                Kind::Time => times.parse(text).map(whole),
                Kind::Whole | Kind::Number => {
                    let float = || text.parse().ok().filter(|value: &f64| value.is_finite());
                    let whole = text.parse().ok().map(Number::Whole);
                    self.number(whole.or_else(|| float().map(Number::Float))?)
                }
            }
        };
        let what = match self {
            Kind::Address => "an IP address",
            Kind::Whole | Kind::Number => "a number",
            Kind::Time => "a time",
        };
        let point = |value: Option<&[u8]>| {
            let Some(value) = value else { return Ok(None) };
            let text = || shortened(&String::from_utf8_lossy(value));
            point(value).map(Some).ok_or_else(|| format!("`{}` in `{name}` is not {what}", text()))
        };
        texts.iter().map(point).collect()
    }
}

/// Returns the spans of the rows of a table, and what their points are. A row without one is never found.
pub(super) fn spans(path: &Path, rows: &RecordBatch, within: &Within) -> Result<(Kind, Vec<Span>), Unusable> {
    match within {
        Within::Network(network) => networks(path, rows, network).map(|spans| (Kind::Address, spans)),
        Within::Range(from, to) => ranges(path, rows, from, to),
    }
}

fn networks(path: &Path, rows: &RecordBatch, column: &str) -> Result<Vec<Span>, Unusable> {
    let found = rows.schema_ref().column_with_name(column);
    let texts = found.and_then(|(place, field)| bytes_of_column(field, rows.column(place)));
    let mut spans = Vec::with_capacity(rows.num_rows());
    for (row, value) in texts.iter().flat_map(|texts| texts.iter()).enumerate() {
        let Some(value) = value else { continue };
        let text = String::from_utf8_lossy(value);
        let Some((first, last, rank)) = network(text.trim_ascii()) else {
            let reason =
                format!("`{}` in `{column}` is not a network, such as `10.0.0.0/8`", shortened(&text));
            return Err(at(path, row, &reason));
        };
        let row = row as u32;
        let mut push = |first, last| {
            if first <= last {
                spans.push(Span { first, last, rank, row });
            }
        };
        // A network of IPv6 has no addresses of IPv4.
        if first < MAPPED && last > MAPPED {
            push(first, MAPPED - 1);
            push(MAPPED + (1 << 32), last);
        } else {
            push(first, last);
        }
    }
    Ok(spans)
}

/// Returns the first and the last address of a network, and the length of its prefix.
fn network(text: &str) -> Option<(u128, u128, u8)> {
    let (start, length) = match text.split_once('/') {
        Some((start, length)) => (start, Some(length)),
        None => (text, None),
    };
    let start: IpAddr = start.parse().ok()?;
    let (most, before) = if start.is_ipv4() { (32, 96) } else { (128, 0) };
    let length: u8 = match length {
        Some(length) if length.bytes().all(|digit| digit.is_ascii_digit()) => length.parse().ok()?,
        Some(_) => return None,
        None => most,
    };
    if length > most {
        return None;
    }
    let rank = before + length;
    let hosts = u128::MAX.checked_shr(u32::from(rank)).unwrap_or(0);
    let first = address(start) & !hosts;
    Some((first, first | hosts, rank))
}

fn ranges(path: &Path, rows: &RecordBatch, from: &str, to: &str) -> Result<(Kind, Vec<Span>), Unusable> {
    let column = |name: &str| rows.column_by_name(name).cloned();
    let (Some(starts), Some(ends)) = (column(from), column(to)) else {
        return Ok((Kind::Number, Vec::new()));
    };
    let kind = match (starts.data_type(), ends.data_type()) {
        (DataType::Int64, DataType::Int64) => Kind::Whole,
        (DataType::Int64 | DataType::Float64, DataType::Int64 | DataType::Float64) => Kind::Number,
        (DataType::Timestamp(..), DataType::Timestamp(..)) => Kind::Time,
        _ => {
            let message =
                format!("the columns `{from}` and `{to}` of `{}` are not numbers or times.", path.display());
            let help =
                format!("Give their types: `types: {{ {from}: int, {to}: int }}`, `float` or `timestamp`.");
            return Err(Unusable::new("on", message).help(help));
        }
    };
    let points = |column: &ArrayRef| kind.of_typed(column).unwrap_or_default();
    let is_nan = |column: &ArrayRef, row: usize, point: Option<u128>| column.is_valid(row) && point.is_none();
    let mut spans = Vec::with_capacity(rows.num_rows());
    for (row, (start, end)) in points(&starts).into_iter().zip(points(&ends)).enumerate() {
        let (start, end) = (start.ok().flatten(), end.ok().flatten());
        // It must not count as NULL, which means that the range has no end there.
        if is_nan(&starts, row, start) || is_nan(&ends, row, end) {
            return Err(at(path, row, &format!("`{from}` or `{to}` is not a number")));
        }
        if start.is_none() && end.is_none() {
            continue;
        }
        let first = start.unwrap_or(0);
        let Some(last) = end.unwrap_or(u128::MAX).checked_sub(1).filter(|last| *last >= first) else {
            return Err(at(path, row, &format!("`{from}` is not less than `{to}`")));
        };
        spans.push(Span { first, last, rank: 0, row: row as u32 });
    }
    Ok((kind, spans))
}

/// An error of a row. Rows count from 1, without a header.
fn at(path: &Path, row: usize, reason: &str) -> Unusable {
    Unusable::at(path, &format!("row {}", row + 1), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, ip: &str) -> bool {
        let (first, last, _) = super::network(network).unwrap();
        let point = address(ip.parse().unwrap());
        first <= point && point <= last
    }

    #[test]
    fn a_network_contains_its_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.1.2.3/8", "10.0.0.0", "9.255.255.255"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::", "2001:db9::"),
            ("::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.1.1", "::10.1.1.1"),
        ] {
            assert!(contains(network, inside), "{network} {inside}");
            assert!(!contains(network, outside), "{network} {outside}");
        }
        assert!(contains("::/0", "::1"));
        for text in
            ["", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0/8", "::/129", "a/8", "10.0.0.0/", "10.0.0.0/256"]
        {
            assert!(network(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_network_of_ipv6_has_no_addresses_of_ipv4() {
        for (text, expected) in [("::/0", 2), ("::fffe:0:0/95", 1), ("::ffff:0:0/96", 1), ("::/96", 1)] {
            let column: ArrayRef = std::sync::Arc::new(arrow_array::StringViewArray::from(vec![text]));
            let rows = RecordBatch::try_from_iter([("n", column)]).unwrap();
            let spans = networks(Path::new("t"), &rows, "n").unwrap();
            assert_eq!(spans.len(), expected, "{text}");
            let point = address("10.0.0.1".parse().unwrap());
            let contains = spans.iter().any(|span| span.first <= point && point <= span.last);
            assert_eq!(contains, text == "::ffff:0:0/96", "{text}");
        }
    }

    #[test]
    fn points_are_in_the_order_of_their_values() {
        let numbers = [f64::NEG_INFINITY, -1.5, -1.0, 0.0, f64::MIN_POSITIVE, 1.0, 1e300, f64::INFINITY];
        assert!(numbers.map(number).is_sorted());
        assert_eq!(number(0.0), number(-0.0));
        assert!([i64::MIN, -1, 0, 1, i64::MAX].map(whole).is_sorted());
        assert_eq!(Kind::Whole.number(Number::Float(-0.5)), Some(whole(-1)));
        assert_eq!(Kind::Number.number(Number::Whole(2)), Some(number(2.0)));
        assert_eq!(Kind::Number.number(Number::Float(f64::NAN)), None);
    }
}
